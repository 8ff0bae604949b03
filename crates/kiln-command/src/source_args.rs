//! Kernel arguments of the command line, shared by `kiln run`, `kiln cache explain` and `kiln cache warm`.

use crate::Fallible;
use kiln::Device;
use kiln::kernel::{Kernel, KernelFlag, KernelOptions, KernelSource, Optimisation};
use std::path::Path;
use std::str::FromStr;

/// How a kernel is compiled.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SourceArgs {
    /// Entry point. Optional if the kernel has only one.
    #[arg(long, value_name = "FUNCTION")]
    entry: Option<String>,
    /// Value of an `override` constant. Repeatable.
    #[arg(long = "constant", value_name = "NAME=NUMBER", value_parser = Named::<f64>::parse)]
    constants: Vec<Named<f64>>,
    /// Compiler option: `bounds-checks`, `fast-math`, `debug-info`, `unbounded-loops` or `uninitialised-workgroup`
    /// with `on` or `off`; `optimisation` with `full` or `none`. On the CPU device, `bounds-checks=off` removes only checks that
    /// are proven redundant, and `debug-info` has no effect. Repeatable.
    #[arg(long = "option", value_name = "NAME=SETTING", value_parser = parse_setting)]
    settings: Vec<Named<String>>,
}

impl SourceArgs {
    /// Reads the kernel in a file. Its name is the file name without folders, so that its identity does not depend on the
    /// working directory.
    pub(crate) fn read(&self, path: &Path) -> Fallible<KernelSource> {
        self.check()?;
        self.read_entry(path, None)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let constant = repeated(self.constants.iter().map(|named| &named.name)).map(|name| ("--constant", name));
        let setting = || repeated(self.settings.iter().map(|named| &named.name)).map(|name| ("--option", name));
        match constant.or_else(setting) {
            Some((option, name)) => Err(format!("expected `{option} {name}=…` once, found it twice")),
            None => Ok(()),
        }
    }

    /// Like [`read`](Self::read), with an entry point that overrides the one of the command line.
    pub(crate) fn read_entry(&self, path: &Path, entry: Option<&str>) -> Fallible<KernelSource> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the kernel {}: {error}", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let mut options = KernelOptions::default();
        for Named { name, value } in &self.settings {
            set(&mut options, name, value)?;
        }
        let mut source = KernelSource::wgsl(text).named(name).options(options);
        if let Some(entry) = entry.or(self.entry.as_deref()) {
            source = source.entry(entry);
        }
        Ok(self.constants.iter().fold(source, |source, Named { name, value }| source.constant(name, *value)))
    }
}

/// Compiles the kernel on a device. If a constant has no value, the error says how to set it.
pub(crate) fn compile(device: &Device, source: KernelSource) -> Fallible<Kernel> {
    device.kernel(source).map_err(|error| {
        let text = error.to_string();
        // The error has no field for the name, so it is taken from the message. If the message changes, only the hint
        // is lost.
        let missing = text.split_once("expected a value for the constant `").and_then(|(_, rest)| rest.split_once('`'));
        match missing {
            Some((name, _)) => format!("{text}; set it with `--constant {name}=NUMBER`").into(),
            None => error.into(),
        }
    })
}

/// Returns the first name that repeats an earlier one.
pub(crate) fn repeated<T: Copy + PartialEq>(names: impl IntoIterator<Item = T>) -> Option<T> {
    let mut seen = Vec::new();
    names.into_iter().find(|name| {
        let is_there = seen.contains(name);
        seen.push(*name);
        is_there
    })
}

/// `NAME=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named<T> {
    pub(crate) name: String,
    pub(crate) value: T,
}

impl<T: FromStr> Named<T> {
    pub(crate) fn parse(text: &str) -> Result<Self, String>
    where
        T::Err: std::fmt::Display,
    {
        let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = parts.ok_or_else(|| format!("expected NAME=VALUE, found `{text}`"))?;
        let value = value.parse().map_err(|error: T::Err| error.to_string())?;
        Ok(Self { name: name.to_string(), value })
    }
}

/// Parses an `--option` for clap.
fn parse_setting(text: &str) -> Result<Named<String>, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=SETTING")?;
    // Checks the setting while the command line is parsed; `read_entry` applies it.
    set(&mut KernelOptions::default(), name, value)?;
    Ok(Named { name: name.to_string(), value: value.to_string() })
}

fn set(options: &mut KernelOptions, name: &str, value: &str) -> Result<(), String> {
    if name == "optimisation" {
        let found = [Optimisation::None, Optimisation::Full].into_iter().find(|known| known.name() == value);
        options.optimisation = found.ok_or_else(|| format!("expected `full` or `none`, found `{value}`"))?;
        return Ok(());
    }
    let is_on = match value {
        "on" => true,
        "off" => false,
        _ => return Err(format!("expected `on` or `off`, found `{value}`")),
    };
    match (name, KernelFlag::ALL.into_iter().find(|flag| flag.name() == name)) {
        ("bounds-checks", _) => options.bounds_checks = is_on,
        ("fast-math", _) => options.fast_math = is_on,
        ("debug-info", _) => options.debug_info = is_on,
        (_, Some(flag)) if is_on => _ = options.flags.insert(flag),
        (_, Some(flag)) => _ = options.flags.remove(&flag),
        _ => {
            let flags = KernelFlag::ALL.map(KernelFlag::name).join(", ");
            return Err(format!(
                "expected one of bounds-checks, fast-math, debug-info, optimisation, {flags}, found `{name}`"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each setting changes its field, and every field can be changed.
    #[test]
    fn settings_reach_the_options() {
        let with = |texts: &[&str]| {
            let mut options = KernelOptions::default();
            for Named { name, value } in texts.iter().map(|text| parse_setting(text).unwrap()) {
                set(&mut options, &name, &value).unwrap();
            }
            options
        };
        let all = [
            "bounds-checks=off",
            "fast-math=off",
            "debug-info=on",
            "optimisation=none",
            "unbounded-loops=on",
            "uninitialised-workgroup=on",
        ];
        let changed = KernelOptions {
            optimisation: Optimisation::None,
            debug_info: true,
            fast_math: false,
            bounds_checks: false,
            flags: KernelFlag::ALL.into(),
        };
        assert_eq!(with(&all), changed);
        for one in all {
            assert_ne!(with(&[one]), KernelOptions::default(), "{one}");
            assert_eq!(parse_setting(one).unwrap().name, one.split('=').next().unwrap());
        }
        let back = ["bounds-checks=on", "fast-math=on", "debug-info=off", "optimisation=full", "unbounded-loops=off"];
        let flags = [KernelFlag::UninitialisedWorkgroup].into();
        assert_eq!(with(&[&all[..], &back].concat()), KernelOptions { flags, ..KernelOptions::default() });
    }

    #[test]
    fn an_invalid_setting_names_the_valid_ones() {
        for (text, error) in [
            ("fast-math", "expected NAME=SETTING"),
            ("fast-math=yes", "expected `on` or `off`, found `yes`"),
            ("optimisation=3", "expected `full` or `none`, found `3`"),
            ("speed=on", "expected one of bounds-checks, fast-math, debug-info, optimisation, unbounded-loops"),
        ] {
            let found = parse_setting(text).unwrap_err();
            assert!(found.starts_with(error), "{text}: {found}");
        }
        assert_eq!(Named::<f64>::parse("A=0.5"), Ok(Named { name: "A".to_string(), value: 0.5 }));
        for text in ["A", "=1", "A=", "A=x"] {
            assert!(Named::<f64>::parse(text).is_err(), "{text}");
        }
    }
}
