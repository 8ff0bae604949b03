//! System properties that determine which drivers are missing: distribution, GPUs on the bus, Vulkan drivers.

use serde::Serialize;
use std::fs;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct System {
    /// `linux`, `macos`, `windows` and so on.
    pub(crate) os: String,
    /// `x86_64`, `aarch64` and so on.
    pub(crate) arch: String,
    /// Name of the system, if known.
    pub(crate) name: Option<String>,
    /// Distribution family, which determines the package manager; `None` if unknown.
    pub(crate) distribution: Option<Distribution>,
    /// Whether this runs as root, which needs no `sudo`.
    pub(crate) is_root: bool,
    /// Vendors of the GPUs on the PCI bus. Linux only; empty elsewhere.
    pub(crate) gpus_on_bus: Vec<GpuVendor>,
    /// Vulkan installation on Linux; `None` elsewhere, where it is part of the system.
    pub(crate) vulkan: Option<Vulkan>,
}

/// A family of Linux distributions with the same package names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Distribution {
    Debian,
    Ubuntu,
    Fedora,
    Arch,
    Alpine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GpuVendor {
    Amd,
    Intel,
    Nvidia,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Vulkan {
    /// Whether the loader (`libvulkan.so.1`) is in a standard directory.
    pub(crate) has_loader: bool,
    /// Driver manifests, without `.json`: `radeon_icd.x86_64`.
    pub(crate) drivers: Vec<String>,
    /// The variable that overrides the drivers above, if one is set.
    pub(crate) drivers_named_by: Option<String>,
    /// Render nodes, the device files of GPUs: `/dev/dri/renderD128`.
    pub(crate) render_nodes: Vec<RenderNode>,
}

/// A render node, the device file of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RenderNode {
    pub(crate) path: String,
    pub(crate) is_accessible: bool,
}

impl System {
    pub(crate) fn detect() -> Self {
        Self::detect_below(Path::new("/"), std::env::consts::OS)
    }

    /// Inspects the system whose files are below `root`.
    fn detect_below(root: &Path, os: &str) -> Self {
        let is_linux = os == "linux";
        let os_release = ["etc/os-release", "usr/lib/os-release"].iter().find_map(|path| read(&root.join(path)));
        let os_release = os_release.filter(|_| is_linux).unwrap_or_default();
        Self {
            os: os.to_string(),
            arch: std::env::consts::ARCH.to_string(),
            name: field(&os_release, "PRETTY_NAME"),
            distribution: Distribution::of(&os_release),
            is_root: is_root(),
            gpus_on_bus: if is_linux { gpus_on_bus(root) } else { Vec::new() },
            vulkan: is_linux.then(|| Vulkan::detect(root)),
        }
    }
}

impl Distribution {
    /// Returns the family that an `os-release` file names by `ID` or `ID_LIKE`.
    fn of(os_release: &str) -> Option<Self> {
        // `ID` first: Ubuntu is also like Debian, but has other packages.
        let ids = ["ID", "ID_LIKE"].map(|key| field(os_release, key).unwrap_or_default()).join(" ");
        ids.split_whitespace().find_map(|id| match id {
            "debian" => Some(Self::Debian),
            "ubuntu" => Some(Self::Ubuntu),
            "fedora" | "rhel" => Some(Self::Fedora),
            "arch" => Some(Self::Arch),
            "alpine" => Some(Self::Alpine),
            _ => None,
        })
    }
}

impl GpuVendor {
    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd => "AMD",
            Self::Intel => "Intel",
            Self::Nvidia => "NVIDIA",
        }
    }

    fn of_pci_id(id: &str) -> Option<Self> {
        match id.trim() {
            "0x1002" => Some(Self::Amd),
            "0x8086" => Some(Self::Intel),
            "0x10de" => Some(Self::Nvidia),
            _ => None,
        }
    }
}

impl Vulkan {
    fn detect(root: &Path) -> Self {
        let manifests = ["usr/share/vulkan/icd.d", "etc/vulkan/icd.d"];
        let names = manifests.iter().flat_map(|dir| names_in(&root.join(dir)));
        let mut drivers: Vec<String> =
            names.filter_map(|name| name.strip_suffix(".json").map(ToString::to_string)).collect();
        drivers.sort();
        drivers.dedup();
        // In the precedence order of the loader.
        let mut variables = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].into_iter();
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Self {
            has_loader: has_loader(root),
            drivers,
            drivers_named_by: variables.find(is_set).map(ToString::to_string),
            render_nodes: render_nodes(root),
        }
    }

    /// Returns whether Mesa's software driver is installed.
    pub(crate) fn has_software_driver(&self) -> bool {
        self.drivers.iter().any(|driver| driver.starts_with("lvp_icd"))
    }

    /// Returns whether a hardware driver for this vendor is installed.
    pub(crate) fn has_driver_for(&self, vendor: GpuVendor) -> bool {
        let stems: &[&str] = match vendor {
            GpuVendor::Amd => &["radeon_icd", "amd_icd"],
            GpuVendor::Intel => &["intel_icd", "intel_hasvk_icd"],
            GpuVendor::Nvidia => &["nvidia_icd", "nouveau_icd"],
        };
        self.drivers.iter().any(|driver| stems.iter().any(|stem| driver.starts_with(stem)))
    }
}

/// Returns the vendors of display controllers on the PCI bus, with or without a driver.
fn gpus_on_bus(root: &Path) -> Vec<GpuVendor> {
    let bus = root.join("sys/bus/pci/devices");
    // PCI class 0x03 is a display controller.
    let is_display = |device: &Path| read(&device.join("class")).is_some_and(|class| class.starts_with("0x03"));
    let devices = names_in(&bus).into_iter().map(|name| bus.join(name));
    let mut vendors: Vec<GpuVendor> = devices
        .filter(|device| is_display(device))
        .filter_map(|device| GpuVendor::of_pci_id(&read(&device.join("vendor"))?))
        .collect();
    vendors.sort();
    vendors.dedup();
    vendors
}

/// Searches `lib`, `lib64` and Debian's multiarch directories below them (`lib/x86_64-linux-gnu`).
fn has_loader(root: &Path) -> bool {
    let dirs = ["usr/lib", "usr/lib64", "lib", "lib64", "usr/local/lib"].map(|dir| root.join(dir));
    let holds_it = |dir: &Path| dir.join("libvulkan.so.1").exists();
    dirs.iter().any(|dir| {
        // Debian and Ubuntu keep libraries in a directory per architecture, such as `x86_64-linux-gnu`.
        let triples = names_in(dir).into_iter().filter(|name| name.contains("-linux-"));
        holds_it(dir) || triples.map(|name| dir.join(name)).any(|dir| holds_it(&dir))
    })
}

fn render_nodes(root: &Path) -> Vec<RenderNode> {
    let dir = root.join("dev/dri");
    let nodes = names_in(&dir).into_iter().filter(|name| name.starts_with("renderD"));
    nodes
        .map(|name| RenderNode {
            // Opened instead of reading its mode: access control lists and container rules also decide.
            is_accessible: fs::OpenOptions::new().read(true).write(true).open(dir.join(&name)).is_ok(),
            path: format!("/dev/dri/{name}"),
        })
        .collect()
}

/// Returns the sorted names in a folder; none if it cannot be read.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Returns the value of a `KEY=value` or `KEY="value"` line.
fn field(os_release: &str, key: &str) -> Option<String> {
    let value = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']).to_string())
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_is_that_of_the_nearest_relative() {
        let table = [
            ("ID=debian\n", Some(Distribution::Debian)),
            ("NAME=x\nID=ubuntu\nID_LIKE=debian\n", Some(Distribution::Ubuntu)),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Some(Distribution::Ubuntu)),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Some(Distribution::Fedora)),
            ("ID=fedora", Some(Distribution::Fedora)),
            ("ID=manjaro\nID_LIKE=arch\n", Some(Distribution::Arch)),
            ("ID=alpine\n", Some(Distribution::Alpine)),
            ("ID=nixos\n", None),
            ("VERSION_ID=debian\n", None),
            ("", None),
        ];
        for (os_release, distribution) in table {
            assert_eq!(Distribution::of(os_release), distribution, "{os_release}");
        }
    }

    #[test]
    fn files_of_an_invented_linux_are_read() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("usr/lib/os-release", "PRETTY_NAME=\"Invented Linux 1\"\nID=arch\n"),
            ("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n"),
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
            // A network card by a GPU vendor, and a display controller that is not a GPU.
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x020000\n"),
            ("sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002\n"),
            ("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1234\n"),
            ("usr/lib/x86_64-linux-gnu/libvulkan.so.1", ""),
            ("usr/share/vulkan/icd.d/lvp_icd.x86_64.json", ""),
            ("etc/vulkan/icd.d/intel_icd.x86_64.json", ""),
            ("dev/dri/card0", ""),
            ("dev/dri/renderD128", ""),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System::detect_below(root.path(), "linux");
        assert_eq!(system.name.as_deref(), Some("Invented Linux 1"));
        assert_eq!(system.distribution, Some(Distribution::Arch));
        assert_eq!(system.gpus_on_bus, [GpuVendor::Intel, GpuVendor::Nvidia]);
        let vulkan = system.vulkan.unwrap();
        assert_eq!(vulkan.drivers, ["intel_icd.x86_64", "lvp_icd.x86_64"]);
        assert!(vulkan.has_loader && vulkan.has_software_driver() && vulkan.has_driver_for(GpuVendor::Intel));
        assert!(!vulkan.has_driver_for(GpuVendor::Nvidia) && !vulkan.has_driver_for(GpuVendor::Amd));
        let nodes: Vec<_> = vulkan.render_nodes.iter().map(|node| (node.path.as_str(), node.is_accessible)).collect();
        assert_eq!(nodes, [("/dev/dri/renderD128", true)]);

        let other = System::detect_below(root.path(), "macos");
        assert_eq!((other.name, other.distribution, other.gpus_on_bus, other.vulkan), (None, None, vec![], None));
    }

    #[test]
    fn system_without_any_of_these_files_is_bare() {
        let root = tempfile::tempdir().unwrap();
        let system = System::detect_below(root.path(), "linux");
        assert_eq!((system.name, system.distribution), (None, None));
        let vulkan = system.vulkan.unwrap();
        assert_eq!((system.gpus_on_bus, vulkan.drivers, vulkan.render_nodes), (vec![], vec![], vec![]));
        assert!(!vulkan.has_loader);
    }
}
