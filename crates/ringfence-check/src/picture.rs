//! Makes an untrusted picture safe for a client: decodes it within limits, shrinks it to the size that models use, and
//! encodes it anew, so that nothing but its pixels remains.

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, ImageResult, Limits,
    codecs::{jpeg::JpegEncoder, png::PngEncoder},
    error::{ImageFormatHint, LimitError, LimitErrorKind, UnsupportedError},
    imageops::FilterType,
};
use serde_json::json;
use std::io::Cursor;

/// Maximum length of the longer side of the output, in pixels: models use no more.
pub const PICTURE_SIDE_MAX: u32 = 1568;

/// Maximum length of a side of the input, in pixels.
const SIDE_MAX: u32 = 16_384;
const DECODED_BYTES_MAX: u64 = 256 << 20;
/// A larger PNG becomes a JPEG, unless it is translucent.
const PNG_BYTES_MAX: usize = 1 << 20;
const JPEG_QUALITY: u8 = 85;

#[rustfmt::skip]
const FORMATS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];

/// Entry point of the worker: a PNG, JPEG, GIF or WebP in; a line of JSON and the first frame, as PNG or JPEG, out.
pub fn picture(input: &[u8]) -> Vec<u8> {
    let redrawn = decode(input).and_then(|image| Ok((encode(&image)?, image)));
    let (head, bytes) = match redrawn {
        Ok(((mime, bytes), image)) => {
            let (width, height) = (image.width(), image.height());
            let head = json!({ "ok": true, "mime": mime, "width": width, "height": height });
            (head, bytes)
        }
        Err(error) => (json!({ "ok": false, "why": error.to_string() }), Vec::new()),
    };
    let mut answer = head.to_string().into_bytes();
    answer.push(b'\n');
    answer.extend_from_slice(&bytes);
    answer
}

/// Decodes the first frame and makes it upright, small, and eight bits deep.
fn decode(input: &[u8]) -> ImageResult<DynamicImage> {
    let mut reader = ImageReader::new(Cursor::new(input)).with_guessed_format()?;
    if !reader.format().is_some_and(|format| FORMATS.contains(&format)) {
        let unknown = UnsupportedError::from(ImageFormatHint::Unknown);
        return Err(ImageError::Unsupported(unknown));
    }
    let mut limits = Limits::no_limits();
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    limits.max_alloc = Some(DECODED_BYTES_MAX);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    // Not every decoder checks the limit against the buffer that it fills.
    if decoder.total_bytes() > DECODED_BYTES_MAX {
        let limit = LimitError::from_kind(LimitErrorKind::InsufficientMemory);
        return Err(ImageError::Limits(limit));
    }
    let orientation = decoder.orientation()?;
    let mut image = shrink(DynamicImage::from_decoder(decoder)?);
    image.apply_orientation(orientation);
    let is_translucent =
        image.color().has_alpha() && image.to_rgba8().pixels().any(|pixel| pixel.0[3] < u8::MAX);
    Ok(match is_translucent {
        true => image.into_rgba8().into(),
        false => image.into_rgb8().into(),
    })
}

fn shrink(image: DynamicImage) -> DynamicImage {
    let (width, height) = (image.width(), image.height());
    let longer = width.max(height);
    if longer <= PICTURE_SIDE_MAX {
        return image;
    }
    let scaled = |side: u32, longest: u32| {
        let side = (u64::from(side) * u64::from(longest) + u64::from(longer) / 2) / u64::from(longer);
        u32::try_from(side).unwrap_or(longest).max(1)
    };
    let size = |longest: u32| (scaled(width, longest), scaled(height, longest));
    // A good filter takes 16 bytes for each pixel of a stripe as wide as the image: large images are averaged first.
    let coarse = PICTURE_SIDE_MAX * 2;
    let averaged = (longer > coarse * 2).then(|| {
        let (width, height) = size(coarse);
        image.thumbnail_exact(width, height)
    });
    let (width, height) = size(PICTURE_SIDE_MAX);
    averaged
        .unwrap_or(image)
        .resize_exact(width, height, FilterType::CatmullRom)
}

fn encode(image: &DynamicImage) -> ImageResult<(&'static str, Vec<u8>)> {
    let mut png = Vec::new();
    image.write_with_encoder(PngEncoder::new(&mut png))?;
    if png.len() <= PNG_BYTES_MAX || image.color().has_alpha() {
        return Ok(("image/png", png));
    }
    let mut jpeg = Vec::new();
    image.write_with_encoder(JpegEncoder::new_with_quality(&mut jpeg, JPEG_QUALITY))?;
    Ok(("image/jpeg", jpeg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processor_time::processor_time;
    use image::{Frame, GenericImageView, Rgb, RgbImage, Rgba, RgbaImage, codecs::gif::GifEncoder};
    use serde_json::Value;
    use std::time::Duration;

    /// Returns the head, and the picture if there is one.
    fn ask(input: &[u8]) -> (Value, Vec<u8>) {
        let answer = picture(input);
        let end = answer.iter().position(|byte| *byte == b'\n').unwrap();
        (
            serde_json::from_slice(&answer[..end]).unwrap(),
            answer[end + 1..].to_vec(),
        )
    }

    fn drawn(input: &[u8]) -> (Value, DynamicImage) {
        let (head, bytes) = ask(input);
        assert_eq!(head["ok"], true, "{head}");
        let image = image::load_from_memory(&bytes).unwrap();
        assert_eq!(head["width"], image.width());
        assert_eq!(head["height"], image.height());
        let format = image::guess_format(&bytes).unwrap();
        assert_eq!(head["mime"], format.to_mime_type());
        (head, image)
    }

    fn refused(input: &[u8]) {
        let (head, bytes) = ask(input);
        assert_eq!((&head["ok"], bytes.len()), (&json!(false), 0), "{head}");
        assert!(!head["why"].as_str().unwrap().is_empty());
    }

    fn file(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn red(width: u32, height: u32) -> RgbImage {
        RgbImage::from_pixel(width, height, Rgb([200, 10, 10]))
    }

    /// An image that cannot be compressed.
    fn noise(width: u32, height: u32) -> RgbaImage {
        let mut state = 1_u32;
        RgbaImage::from_fn(width, height, |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let [r, g, b, _] = (state ^ (state >> 15)).to_le_bytes();
            Rgba([r, g, b, 255])
        })
    }

    /// Returns one chunk of a PNG with its checksum.
    fn chunk(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let checked = [&kind[..], content].concat();
        let mut crc = u32::MAX;
        for byte in &checked {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 {
                    (crc >> 1) ^ 0xedb8_8320
                } else {
                    crc >> 1
                };
            }
        }
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&length[..], &checked, &(!crc).to_be_bytes()].concat()
    }

    const PNG_HEAD: usize = 8 + 25;

    fn with_chunk(png: &[u8], kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
        [&png[..PNG_HEAD], &chunk(kind, content), &png[PNG_HEAD..]].concat()
    }

    /// Returns the start of a PNG that claims this size.
    fn claims(width: u32, height: u32) -> Vec<u8> {
        let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[16, 6, 0, 0, 0]].concat();
        [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &head)[..]].concat()
    }

    fn holds(haystack: &[u8], needle: &[u8]) -> bool {
        haystack.windows(needle.len()).any(|window| window == needle)
    }

    #[test]
    fn large_picture_is_shrunk_and_keeps_its_proportions() {
        let size = |width, height| {
            let (_, image) = drawn(&file(red(width, height), ImageFormat::Png));
            image.dimensions()
        };
        assert_eq!(size(4000, 3000), (1568, 1176));
        assert_eq!(size(1568, 10), (1568, 10));
        assert_eq!(size(3, 2), (3, 2));
        assert_eq!(size(16_000, 2), (1568, 1));
        assert_eq!(size(2, 1569), (2, 1568));
    }

    #[test]
    fn colours_survive_in_every_format() {
        for format in FORMATS {
            let (_, image) = drawn(&file(red(9000, 20), format));
            for (was, is) in [200, 10, 10].into_iter().zip(image.to_rgb8().get_pixel(500, 1).0) {
                assert!(u8::abs_diff(was, is) < 12, "{format:?}: {was} {is}");
            }
        }
    }

    #[test]
    fn decompression_bomb_is_refused_before_decoding() {
        let begun = processor_time();
        refused(&[claims(65_535, 65_535), chunk(b"IDAT", &[0; 100])].concat());
        refused(&[claims(16_385, 1), chunk(b"IDAT", &[0; 100])].concat());
        // Each side is allowed; two gibibytes of pixels are not.
        refused(&[claims(16_384, 16_384), chunk(b"IDAT", &[0; 100])].concat());
        assert!(processor_time() - begun < Duration::from_secs(1));
    }

    #[test]
    fn metadata_is_removed() {
        const SECRET: &[u8] = b"hunter2";
        let plain = file(red(8, 8), ImageFormat::Png);
        for (kind, content) in [
            (b"tEXt", &b"Comment\0hunter2"[..]),
            (b"eXIf", b"MM\0*\0\0\0\x08hunter2"),
            (b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0hunter2"),
            (b"zzZz", b"hunter2"),
        ] {
            let input = with_chunk(&plain, kind, content);
            assert!(holds(&input, SECRET));
            let (head, output) = ask(&input);
            assert_eq!(head["ok"], true, "{head}");
            assert!(!holds(&output, SECRET) && !holds(&output, kind));
        }
        let mut jpeg = file(red(8, 8), ImageFormat::Jpeg);
        jpeg.splice(2..2, *b"\xff\xfe\x00\x09hunter2");
        jpeg.extend_from_slice(b"hunter2 after the end");
        let (head, output) = ask(&jpeg);
        assert!(head["ok"] == true && !holds(&output, SECRET), "{head}");
    }

    #[test]
    fn incomplete_and_unsupported_pictures_are_refused() {
        let png = file(noise(64, 64), ImageFormat::Png);
        for cut in [0, 1, 8, PNG_HEAD, PNG_HEAD + 12, png.len() / 2] {
            refused(&png[..cut]);
        }
        let mut broken = png;
        broken[200] ^= 1;
        refused(&broken);
        refused(b"<svg xmlns='http://www.w3.org/2000/svg'/>");
        refused(b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0");
        refused(&[0; 5000]);
    }

    #[test]
    fn every_prefix_and_every_flipped_bit_gets_an_answer() {
        for format in FORMATS {
            let whole = file(noise(9, 7), format);
            for at in 0..whole.len() {
                ask(&whole[..at]);
                for bit in 0..8 {
                    let mut flipped = whole.clone();
                    flipped[at] ^= 1 << bit;
                    ask(&flipped);
                }
            }
        }
    }

    #[test]
    fn large_png_becomes_a_jpeg_unless_it_is_translucent() {
        let mut image = noise(700, 700);
        let (head, _) = drawn(&file(image.clone(), ImageFormat::Png));
        assert_eq!(head["mime"], "image/jpeg");
        image.put_pixel(3, 3, Rgba([1, 2, 3, 4]));
        let (head, redrawn) = drawn(&file(image, ImageFormat::Png));
        assert_eq!(head["mime"], "image/png");
        assert_eq!(redrawn.get_pixel(3, 3), Rgba([1, 2, 3, 4]));
    }

    #[test]
    fn first_frame_of_an_animation_is_used() {
        let frame = |colour| Frame::new(RgbaImage::from_pixel(8, 8, Rgba(colour)));
        let mut gif = Vec::new();
        let frames = [frame([255, 0, 0, 255]), frame([0, 0, 255, 255])];
        GifEncoder::new(&mut gif).encode_frames(frames).unwrap();
        let (_, image) = drawn(&gif);
        assert_eq!(image.get_pixel(4, 4), Rgba([255, 0, 0, 255]));
    }

    #[test]
    fn rotated_photograph_is_turned_upright() {
        // An Exif directory with one entry: orientation, rotated by 90 degrees.
        let exif = b"\xff\xe1\x00\x22Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
        let mut jpeg = file(red(40, 20), ImageFormat::Jpeg);
        jpeg.splice(2..2, *exif);
        assert_eq!(drawn(&jpeg).1.dimensions(), (20, 40));
    }
}
