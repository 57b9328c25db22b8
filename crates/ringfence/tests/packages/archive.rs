//! Wheels and npm packages: a zip written byte by byte, and a tar.

use flate2::{Compression, Crc, write::GzEncoder};

/// Returns a zip of these files (APPNOTE.TXT 4.3).
fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut common = Vec::new();
        for half in [20_u16, 0, 0, 0, 0x21] {
            common.extend(half.to_le_bytes());
        }
        let length = u32::try_from(content.len()).unwrap();
        let mut crc = Crc::new();
        crc.update(content);
        for word in [crc.sum(), length, length] {
            common.extend(word.to_le_bytes());
        }
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        bytes.extend(b"PK\x03\x04");
        bytes.extend(&common);
        bytes.extend(name.as_bytes());
        bytes.extend(content);
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(&common);
        directory.extend([0; 6]);
        directory.extend((0o100_644_u32 << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    let (at, length) = (bytes.len(), directory.len());
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count);
    bytes.extend(count);
    bytes.extend(u32::try_from(length).unwrap().to_le_bytes());
    bytes.extend(u32::try_from(at).unwrap().to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

/// Returns a wheel of this package for every Python 3.
pub fn wheel(name: &str, version: &str, files: &[(&str, &str)], needs: &[&str]) -> Vec<u8> {
    let about = format!("{name}-{version}.dist-info");
    let needs: String = needs
        .iter()
        .map(|needed| format!("Requires-Dist: {needed}\n"))
        .collect();
    let mut all: Vec<(String, Vec<u8>)> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()))
        .collect();
    let own = [
        (
            "METADATA",
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"),
        ),
        (
            "WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned(),
        ),
        (
            "entry_points.txt",
            format!("[console_scripts]\n{name}-tool = {name}:main\n"),
        ),
    ];
    all.extend(own.map(|(file, text)| (format!("{about}/{file}"), text.into_bytes())));
    let record: String = all.iter().map(|(path, _)| format!("{path},,\n")).collect();
    all.push((
        format!("{about}/RECORD"),
        format!("{record}{about}/RECORD,,\n").into_bytes(),
    ));
    zip(&all)
}

/// Returns a gzipped tar as npm packs it: everything is below `package`.
pub fn tgz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut head = tar::Header::new_ustar();
        head.set_mode(0o644);
        head.set_size(text.len() as u64);
        tar.append_data(&mut head, format!("package/{path}"), text.as_bytes())
            .unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}
