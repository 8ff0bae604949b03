//! A single cloneable error type with a kind, because one fault can reach many callers (decision 0003).

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Alias for a `Result` with Kiln's [`Error`].
///
/// See [the crate](crate) for an example.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error: a [kind](ErrorKind) to match on, a message, the context added by each layer, and a source.
///
/// Cheap to clone: the loss of a device is reported to all of its users.
///
/// See [`error!`](crate::error!) for an example.
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

/// The kind of an [`Error`], named for the caller's remedy.
///
/// See [`error!`](crate::error!) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the call.
    InvalidArgument,
    /// Fix the shapes.
    ShapeMismatch,
    /// Use another device, dtype or op.
    Unsupported,
    /// Free memory and retry.
    OutOfMemory,
    /// Make the request smaller; freeing memory does not help.
    TooLarge,
    /// Open a new device.
    DeviceLost,
    /// Fix the kernel source.
    CompileFailed,
    /// Discard the data and recreate it.
    Corrupt,
    /// Check the file system or the network.
    Io,
    /// No action needed: the caller asked for the cancellation.
    Cancelled,
    /// Report a bug in Kiln.
    Internal,
}

impl Error {
    /// Creates an error. The message is in lower case and says what was expected, what was found, and where.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, message: message.into(), context: Vec::new(), source: None }))
    }

    /// Prefixes the message with context known to the calling layer (an op, a label, a path).
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        // Copies a shared error, so that its other holders do not see this context.
        Arc::make_mut(&mut self.0).context.push(context.into());
        self
    }

    /// Attaches the underlying error as the source.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without its context.
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

/// Creates an [`Error`] from a kind and a formatted message.
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

/// Returns early from the calling function with an [`Error`]; takes the same arguments as [`error!`](crate::error!).
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
