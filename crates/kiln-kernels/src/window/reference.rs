//! Textbook windows in `f64`, with explicit padding.

use super::Window;

/// Reads a zero-padded image at signed coordinates.
fn padded(images: &[f64], sizes: [usize; 4], at: [usize; 2], place: [isize; 2]) -> f64 {
    let [_, channels, height, width] = sizes;
    let inside = place[0] >= 0 && place[1] >= 0 && (place[0] as usize) < height && (place[1] as usize) < width;
    if inside {
        images[((at[0] * channels + at[1]) * height + place[0] as usize) * width + place[1] as usize]
    } else {
        0.0
    }
}

/// Returns the patches of a window over images `(batch, channels, height, width)`.
pub(crate) fn unfold(window: &Window, sizes: [usize; 4], images: &[f64]) -> Vec<f64> {
    let positions = window.positions([sizes[2], sizes[3]]).unwrap();
    let mut rows = Vec::new();
    for batch in 0..sizes[0] {
        for down in 0..positions[0] {
            for across in 0..positions[1] {
                for channel in 0..sizes[1] {
                    for row in 0..window.size[0] {
                        for column in 0..window.size[1] {
                            let y = (down * window.stride[0] + row * window.dilation[0]) as isize
                                - window.padding[0] as isize;
                            let x = (across * window.stride[1] + column * window.dilation[1]) as isize
                                - window.padding[1] as isize;
                            rows.push(padded(images, sizes, [batch, channel], [y, x]));
                        }
                    }
                }
            }
        }
    }
    rows
}
