//! Where metrics go.

use crate::{Error, ErrorKind};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where metrics go: `127.0.0.1:9464`, or `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To whoever asks for `/metrics` at this address of the machine itself. Port 0 lets the system choose one.
    Http(SocketAddr),
    /// Into this file every second, and when the exporter ends.
    File(PathBuf),
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => text.parse().map(Self::Http).map_err(|_| {
                let message = format!("expected `127.0.0.1:PORT` or `file:PATH`, found `{text}`");
                Error::new(ErrorKind::InvalidArgument, message)
            }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(address) => address.fmt(f),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_files() {
        for text in ["127.0.0.1:9464", "127.0.0.1:0", "[::1]:80", "file:metrics.prom", "file:/a b/c"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in ["", "9464", "localhost:9464", "127.0.0.1", "127.0.0.1:99999", "file:", "FILE:a", "metrics.prom"] {
            let error = text.parse::<Target>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().ends_with(&format!("found `{text}`")), "{error}");
        }
    }
}
