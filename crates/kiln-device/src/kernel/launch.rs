//! Launches: a kernel with its arguments and grid, checked before submission.

use super::grid::{Extent, Grid, GridPart, split};
use super::reflect::{Binding, BindingKind, BindingName, Reflection};
use super::value::{Number, Value};
use super::{Kernel, split_grid};
use crate::buffer::{Buffer, TypedBuffer};
use crate::command::{BoundBuffer, BoundValue, Command, CommandList, Dispatch};
use crate::observe::KernelCost;
use bytemuck::Pod;
use kiln_ir::{Error, ErrorKind, Result, error};

/// A launch under construction. [`over`](Self::over) runs it, [`record`](Self::record) records it.
///
/// Errors in arguments are detected by `bind` and `value`, and returned by the call that ends the launch.
///
/// See [`Kernel`] for an example.
#[derive(Debug)]
#[must_use = "a launch does nothing before `over`, `submit` or `record`"]
pub struct Launch<'k> {
    kernel: &'k Kernel,
    /// Indexed by binding.
    arguments: Vec<ArgumentState>,
    grid: Option<Grid>,
    cost: Option<KernelCost>,
    fault: Option<Error>,
}

/// The argument of a binding so far.
#[derive(Clone, Debug)]
enum ArgumentState {
    Nothing,
    Buffer(Buffer),
    /// The bytes of the value, and which of them are set.
    Value(Vec<u8>, Vec<bool>),
}

/// A buffer argument: a shared reference if the kernel only reads it, a mutable one if it may write it.
///
/// Passed to [`Launch::bind`]; see [`Kernel`] for an example.
#[derive(Debug)]
pub struct Argument<'a> {
    buffer: &'a Buffer,
    writable: bool,
    /// The element type, if the buffer is typed.
    element: Option<Element>,
}

/// The Rust type of a buffer's elements.
#[derive(Debug)]
struct Element {
    name: &'static str,
    bytes: u64,
    number: Number,
}

impl Element {
    fn of<T: Pod>() -> Self {
        Self { name: std::any::type_name::<T>(), bytes: size_of::<T>() as u64, number: Number::of::<T>() }
    }

    /// Returns whether the elements match the type of the binding, as far as it is known.
    fn fits(&self, binding: &Binding) -> bool {
        let stride = binding.stride_bytes.unwrap_or(binding.min_bytes);
        let is_stride_compatible = self.bytes.is_multiple_of(stride) || stride.is_multiple_of(self.bytes);
        match (self.number, binding.scalar) {
            (Number::Scalar(found), Some(wanted)) => found == wanted,
            (Number::Array(found), Some(wanted)) => found == wanted && is_stride_compatible,
            // Plain numbers may fill a struct; only their layout could be wrong.
            (Number::Scalar(_) | Number::Array(_), None) => true,
            // WGSL has no such number.
            (Number::Foreign, _) => false,
            // A user-defined struct or array: its size must be compatible with the stride of the binding.
            (Number::None, Some(wanted)) => is_stride_compatible && self.bytes.is_multiple_of(wanted.bytes()),
            (Number::None, None) => binding.stride_bytes.is_none() || is_stride_compatible,
        }
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Self { buffer, writable: false, element: None }
    }
}

impl<'a> From<&'a mut Buffer> for Argument<'a> {
    fn from(buffer: &'a mut Buffer) -> Self {
        Self { buffer, writable: true, element: None }
    }
}

impl<'a, T: Pod> From<&'a TypedBuffer<T>> for Argument<'a> {
    fn from(buffer: &'a TypedBuffer<T>) -> Self {
        Self { writable: false, buffer: buffer.as_bytes(), element: Some(Element::of::<T>()) }
    }
}

impl<'a, T: Pod> From<&'a mut TypedBuffer<T>> for Argument<'a> {
    fn from(buffer: &'a mut TypedBuffer<T>) -> Self {
        Self { writable: true, buffer: buffer.as_bytes(), element: Some(Element::of::<T>()) }
    }
}

impl<'k> Launch<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Self {
        let arguments = vec![ArgumentState::Nothing; kernel.reflection().bindings.len()];
        Self { kernel, arguments, grid: None, cost: None, fault: None }
    }

    /// Binds a buffer: `&buffer` if the kernel only reads it, `&mut buffer` if it may write it.
    ///
    /// Devices bind whole words of four bytes, so a kernel sees one more element than an odd number of `f16`.
    pub fn bind<'n>(mut self, place: impl Into<BindingName<'n>>, buffer: impl Into<Argument<'n>>) -> Self {
        let bound = self.try_bind(place.into(), &buffer.into());
        self.record_error(bound)
    }

    /// Sets a uniform or a member of one: `n`, `params.scale`.
    pub fn value<'n>(mut self, place: impl Into<BindingName<'n>>, value: impl Into<Value>) -> Self {
        let set = self.try_value(place.into(), &value.into());
        self.record_error(set)
    }

    /// Sets the number of workgroups.
    pub fn grid(mut self, grid: Grid) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Sets the cost of the launch for the [statistics](crate::KernelStatistics) of the device. Default: the bytes of
    /// its buffers.
    pub fn cost(mut self, cost: KernelCost) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Runs the kernel with an invocation for every item of a problem, given by its length, or its lengths along x, y
    /// and z. Does not wait for it.
    ///
    /// # Errors
    /// Returns the same errors as [`submit`](Self::submit).
    pub fn over(self, extent: impl Into<Extent>) -> Result<()> {
        self.grid(Grid::over(extent)).submit().map(drop)
    }

    /// Runs the kernel as a submission of its own and returns the submission's number, without waiting for it.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the grid is missing, or if an argument is missing, unknown or of the wrong type;
    /// the device's fault.
    pub fn submit(self) -> Result<u64> {
        let device = self.kernel.device().clone();
        let mut commands = device.commands();
        self.record(&mut commands)?;
        device.submit(commands)
    }

    /// Records the launch in a command list.
    ///
    /// # Errors
    /// Returns the same errors as [`submit`](Self::submit), except the device's fault.
    pub fn record(self, commands: &mut CommandList) -> Result<()> {
        let name = self.kernel.name();
        let in_context = |error: Error| error.context(format!("launch of kernel `{name}`"));
        for dispatch in self.checked().map_err(in_context)? {
            commands.push(Command::Dispatch(dispatch));
        }
        Ok(())
    }

    fn record_error(mut self, result: Result<()>) -> Self {
        self.fault = self.fault.or(result.err());
        self
    }

    fn reflection(&self) -> &'k Reflection {
        self.kernel.reflection()
    }

    fn try_bind(&mut self, place: BindingName<'_>, argument: &Argument<'_>) -> Result<()> {
        let (index, binding) = self.reflection().find(place)?;
        check_buffer(self.kernel, binding, argument)?;
        if !matches!(self.arguments[index], ArgumentState::Nothing) {
            return Err(invalid(format!("binding `{}` expected one buffer, found two", binding.name)));
        }
        self.arguments[index] = ArgumentState::Buffer(argument.buffer.clone());
        Ok(())
    }

    fn try_value(&mut self, place: BindingName<'_>, value: &Value) -> Result<()> {
        // `params.scale` is a member of `params`.
        let (variable, member) = match place {
            BindingName::Name(name) if name.contains('.') => {
                let (variable, member) = name.split_once('.').unwrap_or((name, ""));
                (BindingName::Name(variable), Some(member))
            }
            _ => (place, None),
        };
        let (index, binding) = self.reflection().find(variable)?;
        if binding.kind != BindingKind::Value {
            return Err(invalid(format!("binding {binding} expected a buffer (`bind`), found a value")));
        }
        let (offset, wanted, type_name) = match member {
            None => (0, binding.min_bytes as usize, &binding.type_name),
            Some(member) => {
                let found = binding.members.iter().find(|candidate| candidate.name == member).ok_or_else(|| {
                    let names: Vec<&str> = binding.members.iter().map(|member| member.name.as_str()).collect();
                    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
                    invalid(format!("value `{}` expected one of its members ({names}), found `{member}`", binding.name))
                })?;
                (found.offset as usize, found.bytes as usize, &found.type_name)
            }
        };
        let found = value.type_name.as_deref();
        let fits = value.bytes.len() == wanted && found.is_none_or(|found| found == type_name);
        if !fits {
            let found = found.map_or_else(|| format!("{} bytes", value.bytes.len()), str::to_string);
            return Err(invalid(format!("value {place} expected {type_name} ({wanted} bytes), found {found}")));
        }
        if matches!(self.arguments[index], ArgumentState::Nothing) {
            // Starts as zeros; `gather` checks that every member was set.
            let bytes = binding.min_bytes as usize;
            self.arguments[index] = ArgumentState::Value(vec![0; bytes], vec![false; bytes]);
        }
        if let ArgumentState::Value(bytes, set) = &mut self.arguments[index] {
            // In range: naga lays members out within `min_bytes`, and `is_consistent` checks it for stored reflections.
            bytes[offset..offset + wanted].copy_from_slice(&value.bytes);
            set[offset..offset + wanted].fill(true);
        }
        Ok(())
    }

    /// Checks the launch and returns its dispatches: one, several if the grid exceeds the device's limit, none if it is
    /// empty.
    fn checked(self) -> Result<Vec<Dispatch>> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let reflection = self.kernel.reflection();
        let Some(grid) = self.grid else {
            let size = reflection.workgroup_size;
            return Err(invalid(format!(
                "expected a grid, found none; `over(n)` runs an invocation for each of n items, \
                 `grid(Grid::workgroups([x, y, z]))` that many workgroups of {size:?}"
            )));
        };
        let (buffers, values) = gather(reflection, self.arguments)?;
        let total = grid.resolve(reflection.workgroup_size)?;
        if total.contains(&0) {
            // Buffers of an empty problem may be too small for their bindings.
            check_aliases(reflection, &buffers)?;
            return Ok(Vec::new());
        }
        check_bound(reflection, &buffers)?;
        let limit = self.kernel.device().info().limits.max_workgroups_per_axis;
        if total.iter().all(|count| *count <= limit) {
            let part = GridPart::whole(total);
            return Ok(vec![Dispatch::new(self.kernel.loaded().clone(), buffers, values, part, self.cost)]);
        }
        // The variant reads its offset from a uniform, which each dispatch sets.
        let parts = split(total, limit)?;
        let kernel = self.kernel.for_split_grid()?;
        let slot = kernel.reflection().bindings.iter().position(|binding| binding.kind == BindingKind::Grid);
        let slot =
            slot.ok_or_else(|| error!(Internal, "expected a split kernel to declare its grid binding, found none"))?;
        // Only the first dispatch carries the cost of the launch.
        let mut cost = self.cost;
        let dispatch = |part| {
            let mut values = values.clone();
            values.push(BoundValue { slot: slot as u32, bytes: split_grid::encode(part) });
            Dispatch::new(kernel.loaded().clone(), buffers.clone(), values, part, cost.replace(KernelCost::default()))
        };
        Ok(parts.map(dispatch).collect())
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

fn check_buffer(kernel: &Kernel, binding: &Binding, argument: &Argument<'_>) -> Result<()> {
    let buffer = argument.buffer;
    if !binding.kind.is_buffer() {
        return mismatch(binding, "a value (`value`)", &format!("a buffer of {} bytes", buffer.bytes()));
    }
    if !kernel.device().owns(buffer) {
        let (own, other) = (&kernel.device().info().id, &buffer.device_info().id);
        let wants = format!("a buffer of the kernel's device `{own}`");
        return mismatch(binding, &wants, &format!("one of another device `{other}`"));
    }
    if binding.kind == BindingKind::ReadWrite && !argument.writable {
        return mismatch(binding, "`&mut`, because the kernel may write it", "a shared reference");
    }
    if let Some(element) = &argument.element
        && !element.fits(binding)
    {
        let wanted = binding.scalar.map_or_else(|| binding.type_name.clone(), |scalar| scalar.to_string());
        let stride = binding.stride_bytes.filter(|_| !matches!(element.number, Number::Scalar(_) | Number::Foreign));
        let stride = stride.map_or(String::new(), |stride| format!(" in steps of {stride} bytes"));
        let found = format!("{} ({} bytes each)", element.name, element.bytes);
        return mismatch(binding, &format!("elements of {wanted}{stride}"), &found);
    }
    Ok(())
}

/// Checks that a buffer can be bound, whatever its elements are.
fn check_place(binding: &Binding, buffer: &Buffer) -> Result<()> {
    let (bytes, offset, limits) = (buffer.bytes(), buffer.offset(), &buffer.device_info().limits);
    if !buffer.usage().is_bindable() {
        return mismatch(binding, "a buffer for storage", &format!("one for {}", buffer.usage()));
    }
    if bytes < binding.min_bytes {
        return mismatch(binding, &format!("at least {} bytes", binding.min_bytes), &bytes.to_string());
    }
    if bytes > limits.max_binding_bytes {
        return mismatch(binding, &format!("at most {} bytes", limits.max_binding_bytes), &bytes.to_string());
    }
    let alignment = limits.binding_alignment_bytes;
    // The padding after the end of an allocation belongs to no other buffer, so a partial last word may be bound there.
    let is_whole = bytes.is_multiple_of(4) || buffer.is_end_of_allocation();
    if !offset.is_multiple_of(alignment) || !is_whole {
        let wants = format!("a multiple of 4 bytes at an offset in multiples of {alignment}");
        return mismatch(binding, &wants, &format!("{bytes} bytes at offset {offset}"));
    }
    Ok(())
}

fn mismatch(binding: &Binding, wants: &str, found: &str) -> Result<()> {
    Err(invalid(format!("binding {binding} expected {wants}, found {found}")))
}

/// Checks that a kernel can run with these buffers, which replace ones that were checked before.
pub(crate) fn check_bound(reflection: &Reflection, buffers: &[BoundBuffer]) -> Result<()> {
    for bound in buffers {
        check_place(&reflection.bindings[bound.slot as usize], &bound.buffer)?;
    }
    check_aliases(reflection, buffers)
}

/// Converts the arguments for the device. Returns an error if one is missing.
fn gather(reflection: &Reflection, arguments: Vec<ArgumentState>) -> Result<(Vec<BoundBuffer>, Vec<BoundValue>)> {
    let (mut buffers, mut values) = (Vec::new(), Vec::new());
    for (index, (given, binding)) in arguments.into_iter().zip(&reflection.bindings).enumerate() {
        let slot = index as u32;
        match (given, binding.kind.buffer_use()) {
            (ArgumentState::Buffer(buffer), Some(access)) => buffers.push(BoundBuffer { slot, buffer, access }),
            (ArgumentState::Value(bytes, set), None) => {
                let missing = binding.members.iter().find(|member| !set[member.offset as usize]);
                if let Some(member) = missing {
                    let (name, member) = (&binding.name, &member.name);
                    return Err(invalid(format!("value `{name}` expected all its members, found `{member}` missing")));
                }
                values.push(BoundValue { slot, bytes });
            }
            (_, Some(_)) => return Err(invalid(format!("binding {binding} expected a buffer, found nothing"))),
            (_, None) => return Err(invalid(format!("binding {binding} expected a value, found nothing"))),
        }
    }
    Ok((buffers, values))
}

/// Rejects memory that is written and also bound elsewhere in the same dispatch, which neither Vulkan nor WGSL allows.
fn check_aliases(reflection: &Reflection, buffers: &[BoundBuffer]) -> Result<()> {
    for (position, one) in buffers.iter().enumerate() {
        for other in &buffers[position + 1..] {
            let written = one.access.is_write() || other.access.is_write();
            if written && one.buffer.shares_allocation_with(&other.buffer) {
                let [one, other] = [one, other].map(|bound| &reflection.bindings[bound.slot as usize]);
                return Err(invalid(format!(
                    "bindings {one} and {other} expected buffers of their own, because the kernel may write, \
                     found the same buffer, or two slices of one"
                )));
            }
        }
    }
    Ok(())
}
