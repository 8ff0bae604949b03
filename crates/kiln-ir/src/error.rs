//! One cloneable error with a kind, because one fault reaches many callers (decision 0003).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What the functions of Kiln return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: a [kind](ErrorKind) to react to, a message to read, the context of the layers it passed, a source.
///
/// Cheap to clone: a lost device is reported to everyone who uses it.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    /// Outermost last.
    context: Vec<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`], each named for the caller's remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the call.
    InvalidArgument,
    /// Fix the shapes.
    ShapeMismatch,
    /// Use another device, dtype or op.
    Unsupported,
    /// Free something and try again.
    OutOfMemory,
    /// Make the request smaller; freeing does not help.
    TooLarge,
    /// Make a new device.
    DeviceLost,
    /// Fix the kernel source.
    CompileFailed,
    /// Discard the data and make it again.
    Corrupt,
    /// Look at the file system or the network.
    Io,
    /// Nothing; it was asked for.
    Cancelled,
    /// Report a bug in Kiln.
    Internal,
}

impl Error {
    /// An error with a message in lower case that says what was expected, what was found, and where.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), context: Vec::new(), source: None }))
    }

    /// Puts what the calling layer knows (an op, a label, a path) in front of the message.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).context.push(context.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The message without its context.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// Makes an [`Error`] from its kind and a formatted message.
///
/// ```
/// let error = kiln_ir::error!(InvalidArgument, "expected {} axes, found {}", 2, 3);
/// assert_eq!(format!("{error:?}"), "InvalidArgument: expected 2 axes, found 3");
/// ```
#[macro_export]
macro_rules! error {
    ($kind:ident, $($message:tt)+) => {
        $crate::Error::new($crate::ErrorKind::$kind, ::std::format!($($message)+))
    };
}

/// Returns an [`Error`] from the calling function; takes what [`error!`](crate::error!) takes.
#[macro_export]
macro_rules! bail {
    ($($error:tt)+) => {
        return ::std::result::Result::Err($crate::error!($($error)+))
    };
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for context in self.0.context.iter().rev() {
            write!(f, "{context}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        match &self.0.source {
            Some(source) => write!(f, " (source: {source})"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_the_outside_in_and_clones_are_independent() {
        let inner = Error::new(ErrorKind::Io, "expected a file, found a folder");
        let outer = inner.clone().context("file `a`").context("loading weights");
        assert_eq!(outer.to_string(), "loading weights: file `a`: expected a file, found a folder");
        assert_eq!(inner.to_string(), "expected a file, found a folder");
        assert_eq!(outer.message(), inner.message());
    }

    #[test]
    fn the_source_is_kept_through_context() {
        let error =
            Error::new(ErrorKind::Io, "cannot read").with_source(std::io::Error::other("disk on fire")).context("x");
        assert_eq!(StdError::source(&error).map(ToString::to_string).as_deref(), Some("disk on fire"));
        assert_eq!(format!("{error:?}"), "Io: x: cannot read (source: disk on fire)");
    }
}
