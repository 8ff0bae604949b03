//! An event file bounded by rotation.
//!
//! Does not use the crate `file-rotate`: it rotates after a write that exceeded the limit, leaves a partial line on a full disk, and opens its
//! files itself, so that they cannot be locked against other processes.

use kiln::observe::claim_event_file;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MAX_FILE_BYTES: u64 = 64 << 20;
const MAX_FILES: usize = 4;

/// A file of lines. A file that would exceed its limit is renamed to `name.1` (`name.1` to `name.2`, and so on) and a new one is created; the
/// oldest beyond the maximum number of files is deleted.
///
/// Each call of [`Write::write`] takes whole lines and writes all of them to one file, or none: a partial write is rolled back, so that
/// the file stays readable after the disk has room again.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Whether the file ends with a partial line that could not be removed. [`claim_event_file`] ends the one of a crashed process.
    is_torn: bool,
    max_file_bytes: u64,
    max_files: usize,
}

impl RotatingFile {
    /// Appends to the file at `path`, or to a numbered one if another writer holds it ([`claim_event_file`]): at most 4 files
    /// of 64 MiB.
    ///
    /// # Errors
    /// Returns an error if the file cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::with_limits(path, MAX_FILE_BYTES, MAX_FILES)
    }

    /// Opens with at most `max_files` files, including the current one, of `max_file_bytes` each, both at least 1. Longer lines get a file
    /// of their own. Surplus files, left by a writer with a higher limit, are deleted.
    fn with_limits(path: &Path, max_file_bytes: u64, max_files: usize) -> io::Result<Self> {
        let (file, path) = claim_event_file(path)?;
        let len = file.metadata()?.len();
        for surplus in (max_files..).map(|age| with_age(&path, age)).take_while(|path| path.exists()) {
            fs::remove_file(surplus)?;
        }
        Ok(Self { path, file, len, is_torn: false, max_file_bytes, max_files })
    }

    /// Renames each file to the next number and creates a new one. There is nothing to rename if an earlier attempt failed after the renaming, or
    /// if someone deleted the file.
    fn rotate(&mut self) -> io::Result<()> {
        if self.path.exists() {
            // From the oldest: the first rename overwrites the oldest file, and each later one moves to a name that
            // is then free.
            for age in (1..self.max_files).rev() {
                let from = with_age(&self.path, age - 1);
                if from.exists() {
                    fs::rename(from, with_age(&self.path, age))?;
                }
            }
            if self.max_files == 1 {
                fs::remove_file(&self.path)?;
            }
        }
        *self = Self::with_limits(&self.path, self.max_file_bytes, self.max_files)?;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(bytes);
        match written {
            Ok(()) => self.len += bytes.len() as u64,
            // `len` counts complete writes only, so truncating to it removes the partial line.
            Err(_) => self.is_torn = self.file.set_len(self.len).is_err(),
        }
        written
    }
}

impl Write for RotatingFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // The newline below counts as well.
        let len_after = self.len + u64::from(self.is_torn) + lines.len() as u64;
        if self.len > 0 && len_after > self.max_file_bytes {
            self.rotate()?;
        }
        // Ends the partial line, so that a reader loses that line and not the next one too.
        if self.is_torn {
            self.append(b"\n")?;
            self.is_torn = false;
        }
        self.append(lines)?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns the path of a file after `age` rotations.
fn with_age(path: &Path, age: usize) -> PathBuf {
    if age == 0 {
        return path.to_path_buf();
    }
    let mut name = OsString::from(path);
    name.push(format!(".{age}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a temporary folder and the path of a file in it.
    fn new_file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        (folder, path)
    }

    fn write(file: &mut RotatingFile, lines: &str) {
        assert_eq!(file.write(lines.as_bytes()).unwrap(), lines.len());
    }

    /// Returns the file and its existing older generations, newest first.
    fn generations(path: &Path) -> Vec<PathBuf> {
        (0..).map(|age| with_age(path, age)).take_while(|path| path.exists()).collect()
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    /// Parses all lines as numbers, oldest first; each file ends with a line break.
    fn numbers(path: &Path) -> Vec<u64> {
        let mut numbers = Vec::new();
        for path in generations(path).iter().rev() {
            let text = text(path);
            assert!(text.is_empty() || text.ends_with('\n'), "{} ends in half a line: {text}", path.display());
            numbers.extend(text.lines().map(|line| line.parse::<u64>().unwrap_or_else(|_| panic!("line `{line}`"))));
        }
        numbers
    }

    #[test]
    fn rotation_loses_and_splits_no_line() {
        let (_folder, path) = new_file();
        let mut file = RotatingFile::with_limits(&path, 512, 1000).unwrap();
        // Numbers of one to twenty digits: lines of many lengths reach the limit in many ways.
        let expected: Vec<u64> = (0..5000).map(|at| u64::MAX >> (at % 64)).collect();
        for number in &expected {
            write(&mut file, &format!("{number}\n"));
        }
        assert!(generations(&path).len() > 50, "{} files", generations(&path).len());
        assert_eq!(numbers(&path), expected);
    }

    #[test]
    fn files_and_their_sizes_stay_bounded_at_every_moment() {
        for (max_file_bytes, max_files) in [(25, 4), (5, 2), (35, 1)] {
            let (folder, path) = new_file();
            let mut file = RotatingFile::with_limits(&path, max_file_bytes, max_files).unwrap();
            for number in 0..200 {
                write(&mut file, &format!("{number}\n"));
                let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
                assert!(files.len() <= max_files, "{files:?}");
                assert_eq!(files.len(), generations(&path).len(), "{files:?}");
                for file in &files {
                    assert!(fs::metadata(file).unwrap().len() <= max_file_bytes, "{}", file.display());
                }
                let kept = numbers(&path);
                let expected: Vec<u64> = (number + 1 - kept.len() as u64..=number).collect();
                assert_eq!(kept, expected, "what is kept is the latest, without a gap");
            }
            assert_eq!(generations(&path).len(), max_files);
        }
    }

    #[test]
    fn a_file_is_filled_to_its_limit_before_the_next_begins() {
        let (_folder, path) = new_file();
        let mut file = RotatingFile::with_limits(&path, 6, 9).unwrap();
        (1..=7).for_each(|number| write(&mut file, &format!("{number}\n")));
        let texts: Vec<String> = generations(&path).iter().map(|path| text(path)).collect();
        assert_eq!(texts, ["7\n", "4\n5\n6\n", "1\n2\n3\n"], "newest first");
    }

    #[test]
    fn lines_longer_than_a_file_have_a_file_to_themselves_and_stay_together() {
        let (_folder, path) = new_file();
        let mut file = RotatingFile::with_limits(&path, 3, 9).unwrap();
        for number in 1..=3 {
            write(&mut file, &format!("{number}\n{number}\n"));
        }
        let texts: Vec<String> = generations(&path).iter().map(|path| text(path)).collect();
        assert_eq!(texts, ["3\n3\n", "2\n2\n", "1\n1\n"]);
    }

    #[test]
    fn a_new_writer_goes_on_where_the_last_one_ended() {
        let (_folder, path) = new_file();
        for number in 1..=5 {
            write(&mut RotatingFile::with_limits(&path, 4, 9).unwrap(), &format!("{number}\n"));
        }
        assert_eq!(numbers(&path), [1, 2, 3, 4, 5]);
        assert_eq!(generations(&path).len(), 3, "the length of a file that was there counts");
    }

    #[test]
    fn a_line_torn_by_a_crash_is_ended_before_the_next_one() {
        let (_folder, path) = new_file();
        fs::write(&path, "one\ntw").unwrap();
        let mut file = RotatingFile::open(&path).unwrap();
        write(&mut file, "three\n");
        write(&mut file, "four\n");
        assert_eq!(text(&path), "one\ntw\nthree\nfour\n");
    }

    #[test]
    fn a_file_survives_deletion_a_torn_line_and_a_smaller_number_of_files() {
        let (folder, path) = new_file();
        let mut file = RotatingFile::with_limits(&path, 2, 1).unwrap();
        write(&mut file, "1\n");
        fs::remove_file(&path).unwrap();
        write(&mut file, "2\n");
        assert_eq!(text(&path), "2\n");
        drop(file);

        fs::write(&path, "torn").unwrap();
        write(&mut RotatingFile::with_limits(&path, 6, 4).unwrap(), "3\n");
        assert_eq!(text(&path), "3\n", "the torn line and its end would not have fitted");

        let mut file = RotatingFile::with_limits(&path, 2, 4).unwrap();
        (0..4).for_each(|_| write(&mut file, "4\n"));
        drop(file);
        RotatingFile::with_limits(&path, 2, 2).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn writers_of_one_name_have_a_file_each_until_they_are_gone() {
        let (folder, path) = new_file();
        let claim = || RotatingFile::with_limits(&path, 10, 2).unwrap();
        let name = |file: &RotatingFile| file.path.file_name().unwrap().to_string_lossy().into_owned();
        let (mut first, mut second, third) = (claim(), claim(), claim());
        assert_eq!([name(&first), name(&second), name(&third)], ["events.jsonl", "events.2.jsonl", "events.3.jsonl"]);
        // Both rotate, and keep their names.
        for line in ["one", "two", "three", "four"] {
            write(&mut first, &format!("{line:>9}\n"));
            write(&mut second, &format!("{line}\nagain\n"));
        }
        let found = |name: &str| text(&folder.path().join(name));
        assert_eq!([found("events.jsonl.1"), found("events.jsonl")], ["    three\n", "     four\n"]);
        assert_eq!([found("events.2.jsonl.1"), found("events.2.jsonl")], ["three\nagain\n", "four\nagain\n"]);
        drop((first, third));
        let next = claim();
        assert_eq!(name(&next), "events.jsonl", "free again");
        assert_eq!(name(&claim()), "events.3.jsonl");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn lines_that_the_disk_took_a_part_of_are_taken_back() {
        /// Set for a child: the file that it writes to.
        const FILE: &str = "KILN_TEST_ROTATING_FILE";
        if let Some(path) = std::env::var_os(FILE) {
            let mut file = RotatingFile::open(path.as_ref()).unwrap();
            let failed =
                (10_000..10_300).filter(|number| file.write(format!("{number}\n").as_bytes()).is_err()).count();
            let written = text(path.as_ref()).lines().count();
            assert!((1..300).contains(&written), "{written} lines fit under the limit");
            assert_eq!(written + failed, 300);
            return;
        }
        // The shell makes every write beyond 512 bytes fail midway, as on a full disk, and not with a signal.
        let (folder, path) = new_file();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "rotating_file::tests::lines_that_the_disk_took_a_part_of_are_taken_back"]);
        let output = command.env(FILE, &path).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let len = text(&path).len();
        assert!(len > 400 && !len.is_multiple_of(512), "{len} bytes: the line at the limit was cut, then taken back");
        // With room again, the file continues with whole lines.
        write(&mut RotatingFile::open(&path).unwrap(), "500\n");
        let lines = numbers(&path);
        assert_eq!(lines, (10_000..9_999 + lines.len() as u64).chain([500]).collect::<Vec<_>>());
    }
}
