//! Archives: many entries in one byte stream, to copy a warm store to another machine.
//!
//! An archive is `KILNARCH` and a version, then for each entry a frame and the bytes of its file, then an end frame. A
//! frame is an eight-byte tag (entry or end), a number (the length of the entry, or the number of entries), and the
//! first eight bytes of BLAKE3 over both.

use super::entry::{EntryId, Fault, Head, OpenEntry, Reject, bytes_at, u64_at};
use super::error::{StoreError, StoreErrorKind};
use super::{DiskStore, EntryInfo, PutOutcome};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};

const MAGIC: [u8; 8] = *b"KILNARCH";
const VERSION: u32 = 1;
const ITEM: [u8; 8] = *b"KILNITEM";
const END: [u8; 8] = *b"KILNLAST";
const FRAME_BYTES: usize = 24;

/// The result of [`DiskStore::export`].
///
/// See the [module documentation](crate::store) for an example of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ExportReport {
    /// The number of exported entries.
    pub entries: u64,
    /// The total length of their files.
    pub bytes: u64,
    /// Selected entries that were damaged, or removed meanwhile.
    pub skipped: u64,
}

/// The result of [`DiskStore::import`].
///
/// See the [module documentation](crate::store) for an example of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ImportReport {
    /// Entries that were stored and still exist at the end; a store that is too small evicts the first ones.
    pub imported: u64,
    /// Damaged entries, which were skipped.
    pub damaged: u64,
    /// Entries that are too large for this store, which were skipped.
    pub too_large: u64,
    /// Entries that the filter did not select.
    pub refused: u64,
    /// Whether the archive was read to its end. Otherwise it is truncated or damaged between entries, and the rest was
    /// not imported.
    pub complete: bool,
}

enum Frame {
    Item(u64),
    End(u64),
}

impl DiskStore {
    /// Writes the entries that the filter selects, by key. Each is verified first; damaged ones are skipped.
    pub fn export(
        &self,
        mut writer: impl Write,
        mut filter: impl FnMut(&EntryInfo) -> bool,
    ) -> Result<ExportReport, StoreError> {
        let fault =
            |error: io::Error| StoreError::new(StoreErrorKind::Io, format!("cannot write the archive: {error}"));
        let mut report = ExportReport::default();
        writer.write_all(&MAGIC).and_then(|()| writer.write_all(&VERSION.to_le_bytes())).map_err(fault)?;
        for info in self.entries()?.iter().filter(|entry| filter(entry)) {
            let place = self.entry_path(&EntryId::from_key(&info.key));
            let Ok((entry, payload)) = OpenEntry::read(&place, self.options.max_bytes(), |key| key == info.key) else {
                report.skipped += 1;
                continue;
            };
            let bytes = entry.head.file_bytes();
            let written = writer.write_all(&frame(ITEM, bytes)).and_then(|()| entry.head.write(&payload, &mut writer));
            written.map_err(fault)?;
            report.entries += 1;
            report.bytes += bytes;
        }
        writer.write_all(&frame(END, report.entries)).and_then(|()| writer.flush()).map_err(fault)?;
        Ok(report)
    }

    /// Stores the entries of an archive whose keys the filter selects, replacing entries with the same keys. Damaged
    /// entries are skipped and counted.
    ///
    /// Checksums detect damage, not malice: the filter must decide which entries are safe to load.
    ///
    /// # Errors
    /// Returns `Corrupt` if the stream is not an archive, and an error if the store cannot be written. Entries that
    /// were stored before the error stay.
    pub fn import(
        &self,
        mut reader: impl Read,
        mut filter: impl FnMut(&[u8]) -> bool,
    ) -> Result<ImportReport, StoreError> {
        let fault = |error: io::Error| StoreError::new(StoreErrorKind::Io, format!("cannot read the archive: {error}"));
        read_start(&mut reader)?;
        let mut report = ImportReport::default();
        let (mut items, mut stored) = (0, BTreeSet::new());
        let complete = loop {
            let len = match read_frame(&mut reader).map_err(fault)? {
                Some(Frame::Item(len)) => len,
                // The count detects frames that were cut out of the middle, which leave a valid sequence.
                Some(Frame::End(count)) => break items == count,
                None => break false,
            };
            items += 1;
            let mut item = reader.by_ref().take(len);
            match read_item(&mut item, len, self.options.max_bytes()) {
                Ok((head, _)) if !filter(&head.key) => report.refused += 1,
                Ok((head, payload)) => match self.put_entry(&head, &payload)? {
                    PutOutcome::Stored => drop(stored.insert(EntryId::from_key(&head.key))),
                    PutOutcome::TooLarge => report.too_large += 1,
                    PutOutcome::ReadOnly | PutOutcome::Paused => {
                        let message = "expected a writable store, found one that cannot be written";
                        return Err(StoreError::new(StoreErrorKind::NotWritable, message));
                    }
                },
                Err(Fault::Rejected(Reject::TooLarge)) => report.too_large += 1,
                Err(Fault::Rejected(_)) => report.damaged += 1,
                Err(Fault::Missing) => return Err(fault(io::ErrorKind::NotFound.into())),
                Err(Fault::Io(error)) => return Err(fault(error)),
            }
            // Skips the rest of an entry that was not read to its end, so that the next frame is found.
            io::copy(&mut item, &mut io::sink()).map_err(fault)?;
        };
        // A later entry may have evicted an earlier one.
        let is_there = |id: &&EntryId| self.entry_path(id).symlink_metadata().is_ok();
        Ok(ImportReport { imported: stored.iter().filter(is_there).count() as u64, complete, ..report })
    }
}

fn read_start(reader: &mut impl Read) -> Result<(), StoreError> {
    let corrupt = |found: String| {
        let message = format!("expected an archive of a store (`KILNARCH`, version {VERSION}), found {found}");
        Err(StoreError::new(StoreErrorKind::Corrupt, message))
    };
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    if let Err(error) = reader.read_exact(&mut magic).and_then(|()| reader.read_exact(&mut version)) {
        return corrupt(error.to_string());
    }
    match u32::from_le_bytes(version) {
        _ if magic != MAGIC => corrupt(format!("`{}`", magic.escape_ascii())),
        VERSION => Ok(()),
        version => corrupt(format!("version {version}")),
    }
}

fn read_item(item: &mut impl Read, len: u64, max_bytes: u64) -> Result<(Head, Vec<u8>), Fault> {
    let head = Head::read(item, len, max_bytes)?;
    let payload = head.read_payload(item)?;
    Ok((head, payload))
}

fn frame(tag: [u8; 8], number: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..8].copy_from_slice(&tag);
    frame[8..16].copy_from_slice(&number.to_le_bytes());
    // A frame has its own checksum, because its length locates the next frame: with it, a damaged entry can be
    // skipped without losing the rest.
    let check = blake3::hash(&frame[..16]);
    frame[16..].copy_from_slice(&check.as_bytes()[..8]);
    frame
}

/// Reads the next frame. Returns `None` at the end of the stream or if the bytes are not a frame.
fn read_frame(reader: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut bytes = [0; FRAME_BYTES];
    match reader.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let (tag, number) = (bytes_at(&bytes, 0), u64_at(&bytes, 8));
    Ok(match tag {
        _ if bytes != frame(tag, number) => None,
        ITEM => Some(Frame::Item(number)),
        END => Some(Frame::End(number)),
        _ => None,
    })
}
