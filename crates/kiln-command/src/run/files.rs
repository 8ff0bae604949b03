//! Checks that the files of a command line do not overwrite each other.

use super::problem::Request;
use crate::Fallible;
use crate::new_file::resolve;
use crate::source_args::Named;
use std::path::{Path, PathBuf};

/// Refuses an output path that is also another output, the kernel, or an input of other buffers: one of the two would be lost.
/// Resolved paths are compared, because a file has many names.
pub(super) fn check(request: Request<'_>) -> Fallible<()> {
    let (kernel, inputs) = (place(request.kernel), places(&request.problem.inputs));
    let outputs = places(request.outputs);
    for (position, (name, here)) in outputs.iter().enumerate() {
        let at = |places: &[(&str, PathBuf)]| {
            places.iter().filter(|(_, there)| there == here).map(|(name, _)| (*name).to_string()).collect::<Vec<_>>()
        };
        let (readers, earlier) = (at(&inputs), at(&outputs[..position]));
        let other = match (&earlier[..], &readers[..]) {
            _ if *here == kernel => "the kernel".to_string(),
            ([other, ..], _) => format!("the output of `{other}`"),
            // A buffer may be written back to its own input file, which has been read by then.
            (_, [other, ..]) if !readers.iter().any(|reader| reader == name) => format!("the input of `{other}`"),
            _ => continue,
        };
        let file = request.outputs[position].value.display();
        return Err(format!("output `{name}` expected a separate file, found {file}, which is {other}").into());
    }
    Ok(())
}

fn places(given: &[Named<PathBuf>]) -> Vec<(&str, PathBuf)> {
    given.iter().map(|named| (named.name.as_str(), place(&named.value))).collect()
}

/// Resolves a path. An unresolvable one fails when it is opened.
fn place(path: &Path) -> PathBuf {
    resolve(path).unwrap_or_else(|_| path.to_path_buf())
}
