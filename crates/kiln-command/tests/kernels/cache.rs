//! `kiln cache`.

use crate::support::{Ran, Workspace};
use kiln::cache::store::{DiskStore, StoreOptions};
use kiln::kernel::KernelKey;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const RUN: &str = "run saxpy.wgsl --in x=x.npy --in y=y.npy --out y=out.npy --value alpha=2 --size 100";

/// Returns a workspace for each device, whose cache has the kernel of [`RUN`] and both kernels of `index.wgsl`.
fn warm_workspaces() -> impl Iterator<Item = Workspace> {
    Workspace::on_each_device().inspect(|workspace| {
        ["saxpy.wgsl", "index.wgsl", "x.npy", "y.npy"].iter().for_each(|name| workspace.fixture(name));
        fs::write(workspace.path("list"), "# all\nsaxpy.wgsl\nindex.wgsl plane\nindex.wgsl vectors\n").unwrap();
        let report = workspace.json("cache warm --list list");
        assert_eq!((&report["compiled"], &report["failed"]), (&3.into(), &serde_json::json!([])), "{report:#}");
    })
}

fn open(workspace: &Workspace) -> DiskStore {
    DiskStore::open(workspace.cache_dir().join("kernels"), StoreOptions::new()).unwrap()
}

fn entry_files(workspace: &Workspace) -> Vec<PathBuf> {
    let folder = workspace.cache_dir().join("kernels/entries");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn origin(workspace: &Workspace) -> String {
    workspace.json(RUN)["kernel"]["origin"].as_str().unwrap().to_string()
}

/// Returns the encoded key with another value of one field.
fn with_field(key: &KernelKey, field: &str, value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, old) in key.fields() {
        for text in [name, if name == field { value } else { &old }] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// Adds kernels of an old driver and of a missing device, and an entry that is not a kernel.
fn add_others(workspace: &Workspace) {
    let store = open(workspace);
    let keys: Vec<KernelKey> =
        store.entries().unwrap().iter().map(|entry| KernelKey::decode(&entry.key).unwrap()).collect();
    store.put(&with_field(&keys[0], "driver_version", "0.1"), b"old").unwrap();
    store.put(&with_field(&keys[1], "driver_version", "0.1"), b"old").unwrap();
    store.put(&with_field(&keys[0], "device", "Imaginary GPU"), b"other").unwrap();
    store.put(b"not a kernel", b"foreign").unwrap();
}

/// `list` and `stats` describe the cache without running a kernel.
#[test]
fn list_and_stats_tell_current_stale_elsewhere_and_foreign() {
    for workspace in warm_workspaces() {
        assert_eq!(origin(&workspace), "disk");
        add_others(&workspace);
        let list = workspace.json("cache list");
        let kernels = list["kernels"].as_array().unwrap();
        let listed: Vec<(&str, &str, &str)> = (kernels.iter())
            .map(|kernel| (&kernel["name"], &kernel["entry"], &kernel["state"]))
            .map(|(name, entry, state)| {
                (name.as_str().unwrap_or("-"), entry.as_str().unwrap_or("-"), state.as_str().unwrap())
            })
            .collect();
        let count = |state: &str| listed.iter().filter(|kernel| kernel.2 == state).count();
        assert_eq!((count("current"), count("stale"), count("elsewhere"), count("foreign")), (3, 2, 1, 1), "{list:#}");
        assert!(
            listed.contains(&("index.wgsl", "plane", "current")) && listed.contains(&("saxpy.wgsl", "-", "current"))
        );
        assert!(listed.is_sorted_by_key(|kernel| kernel.0), "{listed:?}");
        let saxpy =
            kernels.iter().find(|kernel| kernel["name"] == "saxpy.wgsl" && kernel["state"] == "current").unwrap();
        assert_eq!((saxpy["uses"].as_u64(), saxpy["hash"].as_str().unwrap().len()), (Some(1), 64));
        let text = workspace.text("cache list");
        assert_eq!(text.lines().count(), 9, "{text}");
        assert!(text.contains("Imaginary GPU") && text.contains("elsewhere"), "{text}");
        let stats = workspace.json("cache stats");
        assert_eq!((&stats["entries"], &stats["max_entries"], &stats["uses"]), (&7.into(), &20_000.into(), &1.into()));
        let bytes: u64 = kernels.iter().map(|kernel| kernel["bytes"].as_u64().unwrap()).sum();
        assert_eq!((stats["bytes"].as_u64(), stats["max_bytes"].as_u64()), (Some(bytes), Some(512 << 20)));
        assert!(workspace.text("cache stats").contains("stale      2 kernels ("));
    }
}

/// Prune by staleness, number, age and size.
#[test]
fn prune_removes_the_selected_kernels() {
    for workspace in warm_workspaces() {
        add_others(&workspace);
        let prune = |arguments: &str| {
            let report = workspace.json(&format!("cache prune {arguments}"));
            (report["removed"].as_u64().unwrap(), report["kept"].as_u64().unwrap())
        };
        assert_eq!(prune("--stale"), (2, 5));
        assert_eq!(prune("--stale"), (0, 5));
        assert_eq!(prune("--unused-for 1d"), (0, 5));
        let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
        fs::File::open(&entry_files(&workspace)[0]).unwrap().set_modified(old).unwrap();
        assert_eq!(prune("--unused-for 1d --max-size 1G"), (1, 4));
        assert_eq!(prune("--max-entries 2"), (2, 2));
        assert_eq!(prune("--max-size 0"), (2, 0));
        let ran = workspace.kiln("cache prune");
        assert_eq!(ran.code, Some(2), "{}", ran.err);
    }
}

/// `explain` says why a kernel misses, and which fields changed.
#[test]
fn explain_names_what_changed() {
    for workspace in warm_workspaces() {
        let hit = workspace.json("cache explain saxpy.wgsl");
        assert_eq!(
            (&hit["outcome"], &hit["changes"], &hit["device"]),
            (&"disk-hit".into(), &serde_json::json!([]), &workspace.device().into())
        );
        let miss = workspace.json("cache explain saxpy.wgsl --constant SCALE=2.5");
        assert_eq!(miss["outcome"], "miss");
        let change = serde_json::json!([{ "field": "constants", "stored": "", "wanted": "SCALE=2.5" }]);
        assert_eq!(miss["changes"], change, "{miss:#}");
        let text = workspace.text("cache explain saxpy.wgsl --constant SCALE=2.5");
        assert!(text.contains(" misses because `constants` changed from nothing to `SCALE=2.5`\n"), "{text}");
        let source = fs::read_to_string(workspace.path("saxpy.wgsl")).unwrap();
        fs::write(workspace.path("saxpy.wgsl"), source.replace("+=", "=")).unwrap();
        let text = workspace.text("cache explain saxpy.wgsl");
        assert!(text.contains("line 10: y[id.x] += SCALE"), "{text}");
        assert_eq!(workspace.json("cache clear")["removed"], 3);
        assert!(workspace.text("cache explain saxpy.wgsl").ends_with(" misses because nothing is on disk\n"));
    }
}

/// A damaged entry is named, is never used, and can be removed.
#[test]
fn verify_names_a_damaged_entry_and_repairs() {
    for workspace in warm_workspaces() {
        assert_eq!(workspace.json("cache verify")["entries"], 3);
        let hash = workspace.json(RUN)["kernel"]["hash"].as_str().unwrap().to_string();
        let file = entry_files(&workspace).into_iter().find(|file| file.ends_with(&hash)).unwrap();
        let flip = || {
            let mut bytes = fs::read(&file).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs::write(&file, bytes).unwrap();
        };
        flip();
        let ran = workspace.kiln("cache verify");
        assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""), "{}", ran.out);
        assert!(ran.out.starts_with(&format!("bad  {hash}  saxpy.wgsl  wrong checksum\n")), "{}", ran.out);
        let ran = workspace.kiln("cache verify --json");
        assert_eq!((ran.code, &ran.json()["bad"][0]["name"]), (Some(1), &hash.as_str().into()));
        let repaired = workspace.json("cache verify --repair");
        assert_eq!((&repaired["repaired"], &repaired["entries"]), (&true.into(), &2.into()));
        assert!(!file.exists());
        assert_eq!(origin(&workspace), "compiled");
        flip();
        assert_eq!(origin(&workspace), "compiled", "a damaged entry is a miss");
        assert_eq!(origin(&workspace), "disk");
    }
}

/// Machine code runs in the process, so it is only loaded from a directory that only its owner can write.
#[test]
fn archives_carry_no_machine_code() {
    let mut workspaces = warm_workspaces();
    let workspace = workspaces.next().unwrap();
    assert_eq!(workspace.device(), "cpu");
    let report = workspace.json("cache export all.kiln");
    assert_eq!((&report["entries"], &report["refused"]), (&0.into(), &3.into()), "{report:#}");
    // An archive from another user may contain machine code.
    let other = workspace.another();
    ["saxpy.wgsl", "x.npy", "y.npy"].iter().for_each(|name| other.fixture(name));
    let mut archive = Vec::new();
    open(&workspace).export(&mut archive, |_| true).unwrap();
    fs::write(other.path("all.kiln"), archive).unwrap();
    let report = other.json("cache import all.kiln");
    assert_eq!((&report["imported"], &report["refused"]), (&0.into(), &3.into()), "{report:#}");
    assert_eq!(origin(&other), "compiled");
}

/// A warm cache is exported to another machine.
#[test]
fn export_and_import_carry_kernels() {
    for workspace in warm_workspaces().filter(|workspace| workspace.device() != "cpu") {
        let exported = workspace.json("cache export all.kiln");
        assert_eq!((&exported["entries"], &exported["skipped"]), (&3.into(), &0.into()));
        let other = workspace.another();
        ["saxpy.wgsl", "x.npy", "y.npy"].iter().for_each(|name| other.fixture(name));
        fs::copy(workspace.path("all.kiln"), other.path("all.kiln")).unwrap();
        assert_eq!(other.json("cache import all.kiln")["imported"], 3);
        assert_eq!(origin(&other), "disk");
        other.text("cache clear");
        let mut bytes = fs::read(other.path("all.kiln")).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(other.path("all.kiln"), bytes).unwrap();
        let ran = other.kiln("cache import all.kiln --json");
        let report = ran.json();
        assert_eq!((ran.code, &report["imported"], &report["damaged"]), (Some(1), &2.into(), &1.into()), "{report:#}");
        let error = other.error("cache import x.npy");
        assert!(error.starts_with("error: x.npy: expected an archive of a store"), "{error}");
        let error = other.error("cache import nowhere");
        assert!(error.starts_with("error: cannot read nowhere: "), "{error}");
    }
}

/// Compiles the named kernels and those that an update made stale, in parallel.
#[test]
fn warm_compiles_in_parallel_and_says_what_failed() {
    for workspace in Workspace::on_each_device() {
        workspace.fixture("bad.wgsl");
        let names: Vec<String> = (0..8).map(|n| format!("k{n}.wgsl")).collect();
        for name in &names {
            let source = format!("@compute @workgroup_size(1) fn main() {{ }} // {name}");
            fs::write(workspace.path(name), source).unwrap();
        }
        let all = names.join(" ");
        let report = workspace.json(&format!("cache warm {all} k0.wgsl --threads 2"));
        assert_eq!((&report["compiled"], &report["loaded"], &report["repeated"]), (&8.into(), &0.into(), &1.into()));
        let text = workspace.text(&format!("cache warm {all}"));
        assert!(
            text.starts_with(&format!("compiled 0 kernels for {} in ", workspace.device()))
                && text.ends_with("; 8 already on disk, 0 failed\n"),
            "{text}"
        );
        let ran = workspace.kiln("cache warm k0.wgsl bad.wgsl nowhere.wgsl --json");
        let report = ran.json();
        assert_eq!((ran.code, &report["loaded"]), (Some(1), &1.into()), "{report:#}");
        let failed: Vec<&str> =
            report["failed"].as_array().unwrap().iter().map(|f| f["kernel"].as_str().unwrap()).collect();
        assert_eq!(failed, ["nowhere.wgsl", "bad.wgsl"]);
        let store = open(&workspace);
        let entry = &store.entries().unwrap()[0];
        let key = KernelKey::decode(&entry.key).unwrap();
        assert!(store.remove(&entry.key).unwrap());
        store.put(&with_field(&key, "driver_version", "0.1"), b"old").unwrap();
        assert_eq!(workspace.json("cache warm --stale")["compiled"], 1);
        assert_eq!(workspace.json("cache list")["kernels"].as_array().unwrap().len(), 9);
    }
}

/// A cache that does not exist is empty, and reading it does not create it. Needs no GPU.
#[test]
fn missing_cache_is_empty_and_is_not_made() {
    let workspace = Workspace::new();
    let directory = workspace.cache_dir().join("kernels").display().to_string();
    assert_eq!(workspace.text("cache list"), format!("no kernels are stored in {directory}\n"));
    for (line, field) in
        [("stats", "entries"), ("verify", "entries"), ("clear", "removed"), ("prune --stale", "removed")]
    {
        assert_eq!(workspace.json(&format!("cache {line}"))[field], 0, "{line}");
    }
    assert!(!workspace.cache_dir().exists());
    for line in ["cache", "cache fly", "cache warm", "cache prune --unused-for 5", "cache prune --max-size big"] {
        assert_eq!(workspace.kiln(line).code, Some(2), "{line}");
    }
}

/// A path that is not UTF-8 is handled the same by all commands. Needs no GPU.
#[cfg(target_os = "linux")]
#[test]
fn cache_directory_may_have_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let workspace = Workspace::new();
    let dir = workspace.path("").join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    DiskStore::open(dir.join("kernels"), StoreOptions::new()).unwrap().put(b"not a kernel", b"foreign").unwrap();
    let run = |line: &str| Ran::of(&workspace.command(line).env("KILN_CACHE_DIR", &dir).output().unwrap());
    assert_eq!(run("cache stats --json").json()["entries"], 1);
    assert!(run("doctor --json").out.contains("caf\u{fffd}"));
    assert_eq!(fs::read_dir(workspace.path("")).unwrap().count(), 1);
}

/// A repeated argument is one error, not one per kernel. Needs no GPU.
#[test]
fn repeated_constants_of_a_warm_up_are_refused() {
    let workspace = Workspace::new();
    let error = workspace.error("cache warm a.wgsl b.wgsl --constant A=1 --constant A=1");
    assert_eq!(error, "error: expected `--constant A=…` once, found it twice\n");
}

/// Damaged use counts are reported separately from entries. Needs no GPU.
#[test]
fn verify_names_damaged_use_counts_and_repairs_them() {
    let workspace = Workspace::new();
    open(&workspace).put(b"not a kernel", b"foreign").unwrap();
    fs::write(workspace.cache_dir().join("kernels/usage"), "damaged").unwrap();
    let ran = workspace.kiln("cache verify");
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.ends_with("; damaged use counts; `kiln cache verify --repair` removes them\n"), "{}", ran.out);
    let text = workspace.text("cache verify --repair");
    assert!(text.ends_with("; removed: damaged use counts\n"), "{text}");
    assert!(workspace.text("cache verify").ends_with("; no damage found\n"));
}

/// A directory that others can write is rejected, with the command that fixes it. Needs no GPU.
#[cfg(unix)]
#[test]
fn untrusted_directory_is_refused_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let workspace = Workspace::new();
    let kernels = workspace.cache_dir().join("kernels");
    fs::create_dir_all(&kernels).unwrap();
    for dir in [kernels, workspace.cache_dir()] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        for line in ["list", "stats", "verify", "clear", "export a", "prune --stale"] {
            let error = workspace.error(&format!("cache {line}"));
            assert!(error.contains("only its owner can write, found mode 777"), "{line}: {error}");
            assert!(error.ends_with(&format!("chmod 700 {}\n", dir.display())), "{line}: {error}");
        }
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let mut command = workspace.command("cache list");
    let ran = Ran::of(&command.env("KILN_CACHE_DIR", "relative").output().unwrap());
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("expected an absolute path, found `relative`; fix: set KILN_CACHE_DIR"), "{}", ran.err);
}

/// A read-only cache can still be read. Root can write everywhere, so the program runs as another user if the
/// tests run as root. Needs no GPU.
#[cfg(unix)]
#[test]
fn read_only_cache_can_be_looked_at_and_not_cleared() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let workspace = Workspace::new();
    // A copy, because another user may have no access to cargo's target directory. `cp` makes it: a program that is
    // still open for writing cannot start, and a child of another test could hold it open.
    let cp = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_kiln")).arg(workspace.path("kiln")).status();
    assert!(cp.unwrap().success());
    open(&workspace).put(b"not a kernel", b"foreign").unwrap();
    let dirs = ["", "cache", "cache/kernels", "cache/kernels/entries"].map(|name| workspace.path(name));
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let others = entry_files(&workspace).into_iter().chain([workspace.path("cache/kernels/lock")]);
        dirs[1..].iter().cloned().chain(others).for_each(|path| chown(path, Some(NOBODY), None).unwrap());
    }
    let set_modes = |mode| {
        let set = |dir: &PathBuf| fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        dirs.iter().rev().for_each(set);
    };
    set_modes(0o555);
    let run = |line: &str| {
        let mut command = std::process::Command::new(workspace.path("kiln"));
        command.args(line.split_whitespace()).env("KILN_CACHE_DIR", workspace.cache_dir());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        Ran::of(&command.output().unwrap())
    };
    let (stats, clear) = (run("cache stats --json"), run("cache clear"));
    set_modes(0o755);
    assert_eq!((stats.code, &stats.json()["entries"]), (Some(0), &1.into()), "{}", stats.err);
    assert_eq!((clear.code, clear.out.as_str()), (Some(1), ""), "{}", clear.err);
    assert!(clear.err.contains("cannot ") || clear.err.contains("expected to remove all entries"), "{}", clear.err);
    assert_eq!(entry_files(&workspace).len(), 1);
}
