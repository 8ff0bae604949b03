//! Missing GPU drivers, and the command that installs them.

use super::report::{Check, Facts, Section, State};
use super::system::{Distribution, GpuVendor, System, Vulkan};
use kiln::{DeviceInfo, DeviceKind};

/// Judges the drivers for the GPUs of the machine.
pub(super) fn derive(facts: &Facts) -> Vec<Check> {
    if !facts.gpu_support {
        let check = note("support", "this build has no GPU support");
        return vec![check.fix("build kiln-command with its default features")];
    }
    // By vendor, because `DeviceInfo` has no PCI address to compare with.
    let unserved = facts.system.gpus_on_bus.iter().filter(|vendor| !facts.serves(**vendor));
    let missing: Vec<Check> = unserved.map(|vendor| explain(*vendor, &facts.system)).collect();
    if missing.is_empty() { vec![explain_rest(facts)] } else { missing }
}

impl Facts {
    /// Returns whether a device belongs to a GPU of this vendor, by the names that drivers report.
    fn serves(&self, vendor: GpuVendor) -> bool {
        let words: &[&str] = match vendor {
            GpuVendor::Amd => &["amd", "radeon"],
            GpuVendor::Intel => &["intel"],
            GpuVendor::Nvidia => &["nvidia", "geforce"],
        };
        let name = |info: &DeviceInfo| format!("{} {}", info.name, info.driver).to_lowercase();
        let gpus = self.devices.iter().map(|device| &device.info).filter(|info| info.kind.is_real_gpu());
        gpus.map(name).any(|name| words.iter().any(|word| name.contains(word)))
    }
}

/// Explains a GPU on the bus without a device.
fn explain(vendor: GpuVendor, system: &System) -> Check {
    let vulkan = &system.vulkan.clone().unwrap_or_default();
    let name = vendor.name();
    if !vulkan.has_driver_for(vendor) {
        let check = note(name, format!("expected a Vulkan driver for the {name} GPU on the bus, found none"));
        return install(check, system, Driver::Of(vendor));
    }
    let check = note(name, format!("a Vulkan driver for the {name} GPU is installed but does not expose it"));
    if let Some(check) = explain_hidden(&check, system, vulkan) {
        return check;
    }
    match vulkan.render_nodes.iter().find(|node| !node.is_accessible) {
        Some(node) => check
            .detail(format!("this user has no permission to open {}", node.path))
            .fix(as_root(system, "usermod -aG render,video \"$USER\"") + ", then log in again"),
        None if vulkan.render_nodes.is_empty() => check
            .detail("no /dev/dri/renderD*: the kernel driver is not loaded, or this is a container")
            .fix("in a container, start it with --device /dev/dri (NVIDIA: --gpus all); otherwise see `dmesg`"),
        None => check.detail("the GPU is too old for the driver, or another program holds it").fix("see `dmesg`"),
    }
}

/// Explains why installed drivers are not found.
fn explain_hidden(check: &Check, system: &System, vulkan: &Vulkan) -> Option<Check> {
    if !vulkan.has_loader {
        let check = check.clone().detail("expected libvulkan.so.1 (the Vulkan loader), found none");
        return Some(install(check, system, Driver::Loader));
    }
    let variable = vulkan.drivers_named_by.as_ref()?;
    let check = check.clone().detail(format!("{variable} is set and hides all other drivers"));
    Some(check.fix(format!("unset {variable}")))
}

/// Explains the drivers if every GPU on the bus has a device.
fn explain_rest(facts: &Facts) -> Check {
    let kinds = || facts.devices.iter().map(|device| device.info.kind);
    if kinds().any(DeviceKind::is_real_gpu) {
        return Check::new(Section::Drivers, "drivers", State::Ok, "nothing is missing");
    }
    let has_software = kinds().any(|kind| kind == DeviceKind::SoftwareGpu);
    match (facts.system.os.as_str(), has_software) {
        ("linux", true) => {
            let message = "nothing is missing: no GPU on the PCI bus; a software driver is available";
            Check::new(Section::Drivers, "drivers", State::Ok, message)
        }
        ("linux", false) => explain_no_device(&facts.system),
        ("macos", _) => note("drivers", "Metal reports no GPU").detail("this is normal in a virtual machine"),
        ("windows", _) => note("drivers", "no GPU supports Vulkan or DX12")
            .fix("if there is a GPU, install the graphics driver of its vendor"),
        _ => note("drivers", "no GPU was found").fix("if there is a GPU, install a Vulkan driver"),
    }
}

/// Explains the drivers if there is neither a GPU on the bus nor a software driver.
fn explain_no_device(system: &System) -> Check {
    let vulkan = &system.vulkan.clone().unwrap_or_default();
    let purpose = "the CPU device needs no driver; a software driver is for testing GPU code on the processor";
    if !vulkan.has_software_driver() {
        let check = note("drivers", "no GPU on the PCI bus, and no software Vulkan driver").detail(purpose);
        return install(check, system, Driver::Software);
    }
    let check =
        note("drivers", "no GPU on the PCI bus; a software driver is installed but does not load").detail(purpose);
    explain_hidden(&check, system, vulkan).unwrap_or_else(|| check.fix("see `vulkaninfo --summary`"))
}

#[derive(Clone, Copy)]
enum Driver {
    /// Driver for the GPUs of a vendor.
    Of(GpuVendor),
    /// Software driver, which runs on the processor.
    Software,
    /// The Vulkan loader, which finds the drivers.
    Loader,
}

/// Adds the install command if the distribution is known.
fn install(check: Check, system: &System, driver: Driver) -> Check {
    let Some(command) = system.distribution.and_then(|distribution| command(distribution, driver)) else {
        return check.fix(match driver {
            Driver::Of(GpuVendor::Nvidia) => {
                "install NVIDIA's driver with Vulkan support, as described by your distribution"
            }
            Driver::Of(_) => "install your distribution's Mesa Vulkan driver",
            Driver::Software => "install your distribution's package of lavapipe, Mesa's software Vulkan driver",
            Driver::Loader => "install your distribution's Vulkan loader (libvulkan.so.1)",
        });
    };
    let check = check.fix(as_root(system, &command));
    match (system.distribution, driver) {
        (Some(Distribution::Debian), Driver::Of(GpuVendor::Nvidia)) => {
            check.detail("the package is in Debian's section non-free")
        }
        (Some(Distribution::Fedora), Driver::Of(GpuVendor::Nvidia)) => {
            check.detail("the package is in RPM Fusion's nonfree repository")
        }
        _ => check,
    }
}

fn command(distribution: Distribution, driver: Driver) -> Option<String> {
    const MESA: &str = "mesa-vulkan-drivers";
    const FEDORA: &str = "mesa-vulkan-drivers vulkan-loader";
    let (manager, [nvidia, amd, intel, software], loader) = match distribution {
        Distribution::Debian => ("apt-get install", ["nvidia-driver", MESA, MESA, MESA], "libvulkan1"),
        Distribution::Ubuntu => ("apt-get install", ["", MESA, MESA, MESA], "libvulkan1"),
        Distribution::Fedora => ("dnf install", ["akmod-nvidia", FEDORA, FEDORA, FEDORA], "vulkan-loader"),
        Distribution::Arch => {
            let packages = ["nvidia-open nvidia-utils", "vulkan-radeon", "vulkan-intel", "vulkan-swrast"];
            ("pacman -S", packages, "vulkan-icd-loader")
        }
        // Alpine does not package NVIDIA's driver.
        Distribution::Alpine => {
            ("apk add", ["", "mesa-vulkan-ati", "mesa-vulkan-intel", "mesa-vulkan-swrast"], "vulkan-loader")
        }
    };
    let package = match driver {
        Driver::Of(GpuVendor::Nvidia) if distribution == Distribution::Ubuntu => {
            return Some("ubuntu-drivers install".to_string());
        }
        Driver::Of(GpuVendor::Nvidia) => nvidia,
        Driver::Of(GpuVendor::Amd) => amd,
        Driver::Of(GpuVendor::Intel) => intel,
        Driver::Software => software,
        Driver::Loader => loader,
    };
    // Driver packages of other distributions contain the loader or depend on it.
    let is_apart = matches!(distribution, Distribution::Arch | Distribution::Alpine) && package != loader;
    let loader = if is_apart { format!(" {loader}") } else { String::new() };
    (!package.is_empty()).then(|| format!("{manager} {package}{loader}"))
}

/// Returns the command with `sudo` or `doas` if this user needs it.
fn as_root(system: &System, command: &str) -> String {
    match (system.is_root, system.distribution) {
        (true, _) => command.to_string(),
        (false, Some(Distribution::Alpine)) => format!("doas {command}"),
        (false, _) => format!("sudo {command}"),
    }
}

fn note(name: &str, message: impl Into<String>) -> Check {
    Check::new(Section::Drivers, name, State::Note, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machines;

    fn with(system: System) -> Facts {
        Facts { system, ..machines::nothing() }
    }

    fn fix(facts: &Facts) -> String {
        let checks = derive(facts);
        assert_eq!(checks.len(), 1, "{checks:?}");
        checks[0].fix.clone().unwrap_or_default()
    }

    /// The doctor names the install command of each distribution.
    #[test]
    fn every_distribution_has_its_command() {
        use Distribution::{Alpine, Arch, Debian, Fedora, Ubuntu};
        let amd = Some(GpuVendor::Amd);
        let (intel, nvidia) = (Some(GpuVendor::Intel), Some(GpuVendor::Nvidia));
        let table = [
            (Some(Debian), None, "sudo apt-get install mesa-vulkan-drivers"),
            (Some(Debian), amd, "sudo apt-get install mesa-vulkan-drivers"),
            (Some(Debian), nvidia, "sudo apt-get install nvidia-driver"),
            (Some(Ubuntu), intel, "sudo apt-get install mesa-vulkan-drivers"),
            (Some(Ubuntu), nvidia, "sudo ubuntu-drivers install"),
            (Some(Fedora), None, "sudo dnf install mesa-vulkan-drivers vulkan-loader"),
            (Some(Fedora), nvidia, "sudo dnf install akmod-nvidia"),
            (Some(Arch), None, "sudo pacman -S vulkan-swrast vulkan-icd-loader"),
            (Some(Arch), amd, "sudo pacman -S vulkan-radeon vulkan-icd-loader"),
            (Some(Arch), intel, "sudo pacman -S vulkan-intel vulkan-icd-loader"),
            (Some(Alpine), None, "doas apk add mesa-vulkan-swrast vulkan-loader"),
            (Some(Alpine), amd, "doas apk add mesa-vulkan-ati vulkan-loader"),
            (Some(Alpine), nvidia, "install NVIDIA's driver with Vulkan support, as described by your distribution"),
            (None, None, "install your distribution's package of lavapipe, Mesa's software Vulkan driver"),
            (None, intel, "install your distribution's Mesa Vulkan driver"),
        ];
        for (distribution, gpu, command) in table {
            let system = System { gpus_on_bus: gpu.into_iter().collect(), ..machines::linux(distribution) };
            assert_eq!(fix(&with(system.clone())), command, "{distribution:?} {gpu:?}");
            let as_root = command.trim_start_matches("sudo ").trim_start_matches("doas ");
            assert_eq!(fix(&with(System { is_root: true, ..system })), as_root, "root needs no sudo");
        }
    }

    #[test]
    fn driver_that_is_there_is_not_installed_again() {
        let system = |vulkan| System {
            gpus_on_bus: vec![GpuVendor::Amd],
            vulkan: Some(vulkan),
            ..machines::linux(Some(Distribution::Debian))
        };
        let radeon = |node| machines::vulkan(&["radeon_icd.x86_64"], node);
        let table = [
            (Vulkan { has_loader: false, ..radeon(Some(true)) }, "sudo apt-get install libvulkan1"),
            (
                Vulkan { drivers_named_by: Some("VK_DRIVER_FILES".into()), ..radeon(Some(true)) },
                "unset VK_DRIVER_FILES",
            ),
            (radeon(Some(false)), "sudo usermod -aG render,video \"$USER\", then log in again"),
            (
                radeon(None),
                "in a container, start it with --device /dev/dri (NVIDIA: --gpus all); otherwise see `dmesg`",
            ),
            (radeon(Some(true)), "see `dmesg`"),
        ];
        for (vulkan, command) in table {
            assert_eq!(fix(&with(system(vulkan.clone()))), command, "{vulkan:?}");
        }
    }

    #[test]
    fn software_driver_that_does_not_load_is_not_installed_again() {
        let lavapipe = || machines::vulkan(&["lvp_icd.x86_64"], None);
        let table = [
            (machines::vulkan(&["radeon_icd.x86_64"], None), "sudo apt-get install mesa-vulkan-drivers"),
            (Vulkan { has_loader: false, ..lavapipe() }, "sudo apt-get install libvulkan1"),
            (Vulkan { drivers_named_by: Some("VK_ICD_FILENAMES".into()), ..lavapipe() }, "unset VK_ICD_FILENAMES"),
            (lavapipe(), "see `vulkaninfo --summary`"),
        ];
        for (vulkan, command) in table {
            let system = System { vulkan: Some(vulkan), ..machines::linux(Some(Distribution::Debian)) };
            assert_eq!(fix(&with(system.clone())), command, "{system:?}");
        }
    }

    #[test]
    fn gpu_without_a_device_is_found_next_to_one_that_has_one() {
        let mut facts = machines::nvidia();
        assert_eq!(derive(&facts)[0].message, "nothing is missing");
        facts.devices.remove(1);
        let checks = derive(&facts);
        assert_eq!(checks.len(), 1, "{checks:?}");
        assert_eq!((checks[0].name.as_str(), checks[0].state), ("NVIDIA", State::Note));

        // A software driver that names a processor of the same vendor is not the GPU.
        let mut facts = machines::lavapipe();
        facts.devices[1].info.name = "llvmpipe on AMD EPYC".into();
        facts.system.gpus_on_bus = vec![GpuVendor::Amd];
        assert_eq!(derive(&facts)[0].name, "AMD");
    }

    #[test]
    fn nothing_is_installed_where_the_system_brings_it_or_the_build_lacks_it() {
        let of = |os: &str| with(System { os: os.into(), vulkan: None, ..machines::linux(None) });
        let first = |facts: &Facts| derive(facts)[0].clone();
        assert_eq!((first(&of("macos")).state, first(&of("macos")).fix), (State::Note, None));
        assert!(first(&of("windows")).fix.unwrap().contains("install the graphics driver of its vendor"));
        assert!(first(&of("freebsd")).fix.unwrap().contains("Vulkan driver"));
        let without = Facts { gpu_support: false, ..machines::nothing() };
        assert_eq!(first(&without).message, "this build has no GPU support");
        assert_eq!(first(&machines::lavapipe()).state, State::Ok);
        assert_eq!(first(&machines::mac()).message, "nothing is missing");
    }
}
