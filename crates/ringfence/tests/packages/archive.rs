//! Wheels and npm packages, byte by byte: a zip and a tar whose content is stored as it is.

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

/// A zip of these files (APPNOTE.TXT 4.3).
fn zip(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let offset = u32::try_from(bytes.len()).unwrap();
        let mut common = Vec::new();
        for half in [20_u16, 0, 0, 0, 0x21] {
            common.extend(half.to_le_bytes());
        }
        let length = u32::try_from(content.len()).unwrap();
        for word in [crc32(content), length, length] {
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

/// A wheel of this package, for every Python.
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

/// A gzip of a tar, as npm packs a package: everything lies below `package`.
pub fn tgz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, text) in files {
        let mut head = [0_u8; 512];
        let mut field = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        field(0, &format!("package/{path}"));
        field(100, "0000644");
        field(108, "0000000");
        field(116, "0000000");
        field(124, &format!("{:011o}", text.len()));
        field(136, "00000000000");
        field(148, "        ");
        field(156, "0");
        field(257, "ustar");
        field(263, "00");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend(head);
        tar.extend(text.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    // Stored blocks (RFC 1951, 3.2.4) in a member (RFC 1952).
    let mut bytes = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    let blocks: Vec<&[u8]> = tar.chunks(0xffff).collect();
    for (number, block) in blocks.iter().enumerate() {
        bytes.push(u8::from(number + 1 == blocks.len()));
        let length = u16::try_from(block.len()).unwrap();
        bytes.extend(length.to_le_bytes());
        bytes.extend((!length).to_le_bytes());
        bytes.extend(*block);
    }
    bytes.extend(crc32(&tar).to_le_bytes());
    bytes.extend(u32::try_from(tar.len()).unwrap().to_le_bytes());
    bytes
}
