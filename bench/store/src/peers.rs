//! The compared stores, as one trait.
//!
//! `redb` and SQLite do not checksum values, so a BLAKE3 checksum is stored with each, as in the other stores. Only Kiln's store records uses
//! and enforces limits, which is included in its times.

use kiln_resource_cache::store::{DiskStore, Lookup, PutOutcome, StoreOptions};
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use rusqlite::{Connection, OptionalExtension};
use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

pub type Fallible<T> = Result<T, Box<dyn Error>>;

pub trait Store {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()>;

    /// Returns the verified payload, or an error if it is damaged.
    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>>;

    /// Puts many entries before anything is timed.
    fn fill(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Fallible<()> {
        for (key, payload) in entries {
            self.put(&key, &payload)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Kiln,
    /// Kiln's store at its limit of entries, so that puts evict.
    KilnFull,
    /// A file that is synced and renamed, with its directory synced: Kiln's put with `fsync`.
    SyncedFiles,
    Cacache,
    Redb,
    /// Commits are not durable until a later durable commit.
    RedbUnsynced,
    /// Write-ahead log, `synchronous = NORMAL`.
    Sqlite,
}

impl Peer {
    pub const ALL: [Self; 7] =
        [Self::Kiln, Self::KilnFull, Self::SyncedFiles, Self::Cacache, Self::Redb, Self::RedbUnsynced, Self::Sqlite];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kiln => "kiln",
            Self::KilnFull => "kiln-full",
            Self::SyncedFiles => "files-fsync",
            Self::Cacache => "cacache",
            Self::Redb => "redb",
            Self::RedbUnsynced => "redb-unsynced",
            Self::Sqlite => "sqlite-wal",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// Opens the store for about `entries` entries.
    pub fn open(self, dir: &Path, entries: u64) -> Fallible<Box<dyn Store>> {
        fs::create_dir_all(dir)?;
        Ok(match self {
            Self::Kiln | Self::KilnFull => {
                let max_entries = if self == Self::Kiln { entries * 2 + 100_000 } else { entries };
                let options = StoreOptions::new().with_max_bytes(1 << 40).with_max_entries(max_entries);
                Box::new(DiskStore::open(dir.join("store"), options)?)
            }
            Self::SyncedFiles => Box::new(SyncedFiles { dir: dir.to_path_buf() }),
            Self::Cacache => Box::new(Cacache { dir: dir.to_path_buf() }),
            Self::Redb | Self::RedbUnsynced => {
                Box::new(Redb { database: Database::create(dir.join("redb"))?, synced: self == Self::Redb })
            }
            Self::Sqlite => Box::new(Sqlite::open(&dir.join("sqlite"))?),
        })
    }
}

impl Store for DiskStore {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()> {
        let outcome = DiskStore::put(self, key, payload)?;
        if outcome == PutOutcome::Stored { Ok(()) } else { Err(format!("{outcome:?}").into()) }
    }

    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        match DiskStore::get(self, key) {
            Lookup::Hit(payload) => Ok(Some(payload)),
            Lookup::Miss => Ok(None),
            other => Err(format!("{other:?}").into()),
        }
    }
}

struct SyncedFiles {
    dir: PathBuf,
}

impl Store for SyncedFiles {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()> {
        let (temporary, place) = (self.dir.join("tmp"), self.dir.join(blake3::hash(key).to_hex().as_str()));
        let mut file = File::create(&temporary)?;
        file.write_all(&sealed(payload))?;
        file.sync_all()?;
        fs::rename(&temporary, &place)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        match fs::read(self.dir.join(blake3::hash(key).to_hex().as_str())) {
            Ok(bytes) => unsealed(bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn fill(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Fallible<()> {
        for (key, payload) in entries {
            fs::write(self.dir.join(blake3::hash(&key).to_hex().as_str()), sealed(&payload))?;
        }
        Ok(())
    }
}

struct Cacache {
    dir: PathBuf,
}

impl Store for Cacache {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()> {
        cacache::write_sync(&self.dir, blake3::hash(key).to_hex().as_str(), payload)?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        match cacache::read_sync(&self.dir, blake3::hash(key).to_hex().as_str()) {
            Ok(payload) => Ok(Some(payload)),
            Err(cacache::Error::EntryNotFound(..)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("entries");

struct Redb {
    database: Database,
    synced: bool,
}

impl Store for Redb {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()> {
        let mut write = self.database.begin_write()?;
        write.set_durability(if self.synced { Durability::Immediate } else { Durability::None })?;
        write.open_table(TABLE)?.insert(key, sealed(payload).as_slice())?;
        write.commit()?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        let read = self.database.begin_read()?;
        match read.open_table(TABLE) {
            Ok(table) => table.get(key)?.map(|value| unsealed(value.value().to_vec())).transpose(),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn fill(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Fallible<()> {
        let write = self.database.begin_write()?;
        for (key, payload) in entries {
            write.open_table(TABLE)?.insert(key.as_slice(), sealed(&payload).as_slice())?;
        }
        write.commit()?;
        Ok(())
    }
}

struct Sqlite(Connection);

impl Sqlite {
    fn open(path: &Path) -> Fallible<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute("CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, payload BLOB) STRICT", ())?;
        Ok(Self(connection))
    }
}

impl Store for Sqlite {
    fn put(&self, key: &[u8], payload: &[u8]) -> Fallible<()> {
        let mut statement = self.0.prepare_cached("INSERT OR REPLACE INTO entries VALUES (?1, ?2)")?;
        statement.execute((key, sealed(payload)))?;
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Fallible<Option<Vec<u8>>> {
        let mut statement = self.0.prepare_cached("SELECT payload FROM entries WHERE key = ?1")?;
        let bytes: Option<Vec<u8>> = statement.query_row([key], |row| row.get(0)).optional()?;
        bytes.map(unsealed).transpose()
    }

    fn fill(&self, entries: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Fallible<()> {
        self.0.execute_batch("BEGIN")?;
        for (key, payload) in entries {
            self.put(&key, &payload)?;
        }
        self.0.execute_batch("COMMIT")?;
        Ok(())
    }
}

fn sealed(payload: &[u8]) -> Vec<u8> {
    [payload, blake3::hash(payload).as_bytes()].concat()
}

fn unsealed(mut bytes: Vec<u8>) -> Fallible<Vec<u8>> {
    let at = bytes.len().checked_sub(32).ok_or("too short")?;
    let checksum = bytes.split_off(at);
    if blake3::hash(&bytes).as_bytes() != checksum.as_slice() {
        return Err("wrong checksum".into());
    }
    Ok(bytes)
}
