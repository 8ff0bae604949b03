//! Convolutions against loops in `f64`.

use crate::devices;
use crate::learning::{check_parameters, near, wave};
use kiln::autograd::{GradientCheck, check_gradients};
use kiln::nn::{Conv1d, Conv2d, Mode, Module};
use kiln::{ErrorKind, Tensor};

/// Convolutions against direct sums, on every device, and their gradients against finite differences.
#[test]
fn convolutions() {
    for subject in devices::all() {
        let device = &subject.device;
        let layer = Conv2d::new(2, 3, [3, 2], device).unwrap().stride([2, 1]).padding([1, 0]).dilation([1, 2]);
        let images = wave(&[2, 2, 5, 6], 0.9, device);
        let found = layer.forward(&images, &Mode::inference()).unwrap();
        assert_eq!(found.shape()[..], [2, 3, 3, 4]);
        let (x, w) = (images.to_vec::<f32>().unwrap(), layer.weight.get().to_vec::<f32>().unwrap());
        let bias = layer.bias.as_ref().unwrap().get().to_vec::<f32>().unwrap();
        let mut wanted = Vec::new();
        for (b, o, y, column) in (0..72).map(|i| (i / 36, i / 12 % 3, i / 4 % 3, i % 4)) {
            let mut sum = f64::from(bias[o]);
            for (c, i, j) in (0..12).map(|i| (i / 6, i / 2 % 3, i % 2)) {
                let (row, at) = (y as isize * 2 + i as isize - 1, column + 2 * j);
                if (0..5).contains(&row) {
                    let x = f64::from(x[((b * 2 + c) * 5 + row as usize) * 6 + at]);
                    sum += x * f64::from(w[((o * 2 + c) * 3 + i) * 2 + j]);
                }
            }
            wanted.push(sum);
        }
        near(subject.name, &found.contiguous().unwrap().to_vec::<f32>().unwrap(), &wanted, 1e-5);
        if !subject.takes_wgsl {
            check_parameters("conv2d", &layer, &images);
            let report =
                check_gradients(|p| layer.forward(&p[0], &Mode::inference()), &[&images], GradientCheck::new())
                    .unwrap();
            assert!(report.passed(), "{report}");
        }
        // The gradient of the input on a GPU equals that on the CPU device.
        let leaf = images.requires_grad().unwrap();
        layer.parameters().iter().for_each(|(_, own)| own.zero_grad().unwrap());
        layer.forward(&leaf, &Mode::inference()).unwrap().square().unwrap().sum_all().unwrap().backward().unwrap();
        let weight = layer.weight.grad().unwrap().to_vec::<f32>().unwrap();
        let own = Conv2d::new(2, 3, [3, 2], devices::cpu()).unwrap().stride([2, 1]).padding([1, 0]).dilation([1, 2]);
        own.weight.set(&layer.weight.get().detach().to_device(devices::cpu()).unwrap()).unwrap();
        let bias = layer.bias.as_ref().unwrap().get().detach().to_device(devices::cpu()).unwrap();
        own.bias.as_ref().unwrap().set(&bias).unwrap();
        let other = images.to_device(devices::cpu()).unwrap().requires_grad().unwrap();
        own.forward(&other, &Mode::inference()).unwrap().square().unwrap().sum_all().unwrap().backward().unwrap();
        let wide = |tensor: Tensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect::<Vec<f64>>();
        near(subject.name, &leaf.grad().unwrap().to_vec::<f32>().unwrap(), &wide(other.grad().unwrap()), 1e-4);
        near(subject.name, &weight, &wide(own.weight.grad().unwrap()), 1e-3);
    }
    let device = devices::cpu();
    let x = wave(&[2, 3, 9], 0.2, device);
    let layer = Conv1d::new(3, 2, 3, device).unwrap().stride(2).padding(1).dilation(2);
    assert_eq!(layer.forward(&x, &Mode::inference()).unwrap().shape()[..], [2, 2, 4]);
    let report = check_gradients(|p| layer.forward(&p[0], &Mode::inference()), &[&x], GradientCheck::new()).unwrap();
    assert!(report.passed(), "{report}");
    let error = layer.forward(&wave(&[2, 9], 0.0, device), &Mode::inference()).unwrap_err();
    assert!(error.to_string().contains("(batch, 3, length)"), "{error}");
    let error =
        Conv2d::new(3, 2, [3, 3], device).unwrap().forward(&wave(&[1, 2, 4, 4], 0.0, device), &Mode::inference());
    assert!(error.unwrap_err().to_string().contains("(batch, 3, height, width)"));
}

/// Convolutions in groups, with strides, padding and dilation, against direct sums, on every device, and their gradients against finite differences.
#[test]
fn convolutions_in_groups() {
    // Channels, outputs, groups: depthwise, depthwise with several outputs, a few groups, one output for each group of several channels.
    for (channels, outputs, groups) in [(4, 4, 4), (3, 6, 3), (4, 6, 2), (6, 3, 3)] {
        for subject in devices::all() {
            let device = &subject.device;
            let layer = Conv2d::grouped(channels, outputs, (3, 2), groups, device).unwrap();
            let layer = layer.stride((2, 1)).padding((1, 1)).dilation((1, 2));
            let images = wave(&[2, channels, 5, 6], 0.9, device);
            let found = layer.forward(&images, &Mode::inference()).unwrap();
            assert_eq!(found.dims(), [2, outputs, 3, 6]);
            let (x, w) = (images.to_vec::<f32>().unwrap(), layer.weight.get().to_vec::<f32>().unwrap());
            let bias = layer.bias.as_ref().unwrap().get().to_vec::<f32>().unwrap();
            let seen = channels / groups;
            let mut wanted = Vec::new();
            for (b, o, y, column) in
                (0..2 * outputs * 18).map(|i| (i / (outputs * 18), i / 18 % outputs, i / 6 % 3, i % 6))
            {
                let mut sum = f64::from(bias[o]);
                for (c, i, j) in (0..seen * 6).map(|i| (i / 6, i / 2 % 3, i % 2)) {
                    let (row, at) = ((2 * y + i) as isize - 1, (column + 2 * j) as isize - 1);
                    if (0..5).contains(&row) && (0..6).contains(&at) {
                        let channel = o / (outputs / groups) * seen + c;
                        let x = f64::from(x[((b * channels + channel) * 5 + row as usize) * 6 + at as usize]);
                        sum += x * f64::from(w[((o * seen + c) * 3 + i) * 2 + j]);
                    }
                }
                wanted.push(sum);
            }
            let name = format!("{channels} channels, {outputs} outputs, {groups} groups on {}", subject.name);
            near(&name, &found.contiguous().unwrap().to_vec::<f32>().unwrap(), &wanted, 1e-5);
            if !subject.takes_wgsl {
                check_parameters(&name, &layer, &images);
                let forward = |p: &[Tensor]| layer.forward(&p[0], &Mode::inference());
                let report = check_gradients(forward, &[&images], GradientCheck::new()).unwrap();
                assert!(report.passed(), "{name}: {report}");
            }
        }
    }
    let device = devices::cpu();
    let layer = Conv1d::grouped(4, 8, 3, 4, device).unwrap().padding(2).dilation(2);
    assert_eq!(layer.weight.get().dims(), [8, 1, 3]);
    let x = wave(&[2, 4, 9], 0.2, device);
    let whole = layer.forward(&x, &Mode::inference()).unwrap();
    // Each group is a separate convolution.
    for group in 0..4 {
        let own = Conv1d::new(1, 2, 3, device).unwrap().padding(2).dilation(2);
        own.weight.set(&layer.weight.get().detach().slice(0, 2 * group..2 * group + 2).unwrap()).unwrap();
        let bias = layer.bias.as_ref().unwrap().get().detach().slice(0, 2 * group..2 * group + 2).unwrap();
        own.bias.as_ref().unwrap().set(&bias).unwrap();
        let part = own.forward(&x.slice(1, group..=group).unwrap(), &Mode::inference()).unwrap();
        let wanted: Vec<f64> = part.to_vec::<f32>().unwrap().into_iter().map(f64::from).collect();
        near("conv1d", &whole.slice(1, 2 * group..2 * group + 2).unwrap().to_vec::<f32>().unwrap(), &wanted, 1e-6);
    }
    for (channels, outputs, groups) in [(4, 4, 0), (4, 6, 4), (3, 4, 2)] {
        let error = Conv2d::grouped(channels, outputs, 3, groups, device).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&format!("found {groups} groups for {channels} channels")), "{error}");
    }
    let error = layer.forward(&wave(&[2, 1, 9], 0.0, device), &Mode::inference()).unwrap_err();
    assert!(error.to_string().contains("conv1d expected (batch, 4, length)"), "{error}");
}
