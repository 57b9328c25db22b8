//! Malicious archives (ATTACKS.md, group I), and ordinary ones.

use crate::tree::{
    Bounds, PackLimits,
    archive::{ArchiveError, Limits, Unpacked, unpack},
    pack,
    tests::fixture::Scratch,
};
use flate2::{Compression, write::GzEncoder};
use std::{
    borrow::Cow,
    fs,
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};
use tar::{EntryType, Header};

const LIMITS: Limits = Limits {
    entries: 100,
    bytes: 1 << 16,
};

/// An archive built header by header, without checks.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn entry(self, kind: u8, name: &[u8], content: &[u8]) -> Self {
        self.with(kind, name, content, |_| {})
    }

    fn with(mut self, kind: u8, name: &[u8], content: &[u8], change: impl FnOnce(&mut Header)) -> Self {
        let mut header = Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_entry_type(EntryType::new(kind));
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_000_000_000);
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(b'0', name.as_bytes(), content.as_bytes())
    }

    fn pax(self, kind: u8, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            // The length includes its own digits.
            let rest = key.len() + value.len() + 3;
            let digits = (1..)
                .find(|digits| (rest + digits).to_string().len() == *digits)
                .unwrap();
            text += &format!("{} {key}={value}\n", rest + digits);
        }
        self.entry(kind, b"pax", text.as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn into(scratch: &Scratch, archive: &[u8]) -> Result<Unpacked, ArchiveError> {
    unpack(scratch.root(), None, archive, LIMITS)
}

fn up_to(limits: Limits) -> PackLimits {
    PackLimits {
        walk: Bounds {
            entries: limits.entries,
            depth: 8,
        },
        bytes: limits.bytes,
    }
}

fn unredacted(bytes: &[u8]) -> Cow<'_, [u8]> {
    bytes.into()
}

/// Asserts that an archive is refused with these words, and that nothing is left inside or beside the directory.
fn refused(name: &str, archive: &[u8], words: &str) {
    let scratch = Scratch::new();
    fs::write(scratch.outside("canary"), "canary").unwrap();
    for archive in [archive.to_vec(), zipped(archive)] {
        let text = into(&scratch, &archive).expect_err(name).to_string();
        assert!(text.contains(words), "{name}: {text}");
        assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0, "{name}");
        assert_eq!(fs::read_dir(scratch.outside("")).unwrap().count(), 2, "{name}");
        assert_eq!(fs::read(scratch.outside("canary")).unwrap(), b"canary", "{name}");
    }
}

#[test]
fn archive_is_unpacked_plain_or_gzipped() {
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(150));
    let archive = Tar::default()
        .pax(b'g', &[("comment", "0123456789abcdef")])
        .entry(b'5', b"dir/", b"")
        .with(b'0', b"dir/tool", b"#!/bin/sh\n", |header| {
            header.set_mode(0o6755)
        })
        .pax(
            b'x',
            &[
                ("path", "dir/päx"),
                ("mtime", "1.5"),
                ("SCHILY.xattr.user.x", "y"),
                ("size", "3"),
            ],
        )
        .entry(b'0', b"ignored", b"abc")
        .entry(b'L', b"././@LongLink", format!("{long}\0").as_bytes())
        .file("cut", "long")
        .end();
    for archive in [archive.clone(), zipped(&archive)] {
        let scratch = Scratch::new();
        let done = into(&scratch, &archive).unwrap();
        assert_eq!(done, Unpacked { files: 3, bytes: 17 });
        let tool = fs::metadata(scratch.path("dir/tool")).unwrap();
        assert_eq!(
            (tool.permissions().mode() & 0o7777, tool.mtime()),
            (0o755, 1_000_000_000)
        );
        assert_eq!(fs::read(scratch.path("dir/päx")).unwrap(), b"abc");
        assert_eq!(fs::read(scratch.path(&long)).unwrap(), b"long");
        assert_eq!(
            fs::read_dir(scratch.path("")).unwrap().count(),
            2,
            "no staging directory"
        );
        // A second time: files are replaced.
        into(&scratch, &archive).unwrap();
    }
}

#[test]
fn archive_with_path_traversal_is_refused_whole() {
    let canary = "/tmp/canary";
    let names = [
        "../canary",
        "a/../../canary",
        canary,
        "C:/canary",
        "..\\canary",
        "a\\b",
        ".",
        "./",
        "./a",
        "a/./b",
        "a//b",
        "/workspace/a",
        "a\nb",
    ];
    for name in names {
        refused(
            name,
            &Tar::default().file("good", "x").file(name, "x").end(),
            "its name",
        );
        let pax = Tar::default().pax(b'x', &[("path", name)]).file("good", "x");
        if !name.contains('\n') {
            refused(name, &pax.end(), "its name");
        }
        let gnu = Tar::default()
            .entry(b'L', b"././@LongLink", name.as_bytes())
            .file("good", "x");
        refused(name, &gnu.end(), "its name");
    }
    let nul = Tar::default()
        .entry(b'L', b"././@LongLink", b"a\0/../../canary")
        .file("good", "x");
    refused("NUL", &nul.end(), "NUL");
    refused("bytes", &Tar::default().entry(b'0', b"\xff", b"").end(), "UTF-8");
    refused("slash", &Tar::default().file("a/", "x").end(), "its name");
}

#[test]
fn conflicting_archive_names_are_refused() {
    let pairs = [
        ("a", "a"),
        ("a", "A"),
        ("a/x", "A/y"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("Straße", "STRASSE"),
    ];
    for (one, other) in pairs {
        refused(
            one,
            &Tar::default().file(one, "1").file(other, "2").end(),
            "is refused",
        );
    }
    refused(
        "directories",
        &Tar::default()
            .entry(b'5', b"a", b"")
            .entry(b'5', b"a/", b"")
            .end(),
        "same name",
    );
}

#[test]
fn links_devices_and_sparse_files_are_refused() {
    let link = |kind: u8| {
        let linked = Tar::default().with(kind, b"link", b"", |header| {
            header.set_link_name_literal("/etc/passwd").unwrap();
        });
        // The classic attack: first a link, then a file through it.
        linked.file("link/new", "x").end()
    };
    refused("symbolic", &link(b'2'), "links");
    refused("hard", &link(b'1'), "links");
    refused(
        "long link",
        &Tar::default()
            .entry(b'K', b"././@LongLink", b"/etc")
            .file("a", "")
            .end(),
        "links",
    );
    refused(
        "pax link",
        &Tar::default()
            .pax(b'x', &[("linkpath", "/etc")])
            .file("a", "")
            .end(),
        "links",
    );
    for kind in [b'3', b'4', b'6'] {
        refused(
            "device",
            &Tar::default().entry(kind, b"dev", b"").end(),
            "devices",
        );
    }
    for kind in [b'7', b'V', b'M', b'D', b'N', b'Z'] {
        refused(
            "kind",
            &Tar::default().entry(kind, b"x", b"").end(),
            "of its type",
        );
    }
    let terabyte = Tar::default().with(b'S', b"sparse", b"", |header| {
        let gnu = header.as_gnu_mut().unwrap();
        gnu.set_real_size(1 << 40);
        gnu.sparse[0].set_offset(1 << 40);
        gnu.sparse[0].set_length(0);
    });
    refused("sparse", &terabyte.end(), "sparse");
    let pax = Tar::default().pax(
        b'x',
        &[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.realsize", "1099511627776"),
        ],
    );
    refused("pax sparse", &pax.file("a", "").end(), "sparse");
}

#[test]
fn contradictory_extensions_are_refused() {
    refused(
        "size",
        &Tar::default().pax(b'x', &[("size", "1")]).file("a", "abc").end(),
        "two sizes",
    );
    refused(
        "global",
        &Tar::default().pax(b'g', &[("path", "x")]).file("a", "").end(),
        "all entries",
    );
    let twice = Tar::default()
        .pax(b'x', &[("path", "x")])
        .entry(b'L', b"L", b"y")
        .file("a", "");
    refused("names", &twice.end(), "two names");
    let long = Tar::default().entry(b'L', b"L", &[b'a'; 70_000]).file("a", "");
    refused("long name", &long.end(), "too long");
    refused(
        "announced",
        &Tar::default().entry(b'L', b"L", b"y").end(),
        "announced",
    );
    let content = Tar::default().with(b'5', b"d", b"content", |_| {});
    refused("directory", &content.end(), "directory with content");
}

#[test]
fn truncated_and_invalid_archives_are_refused() {
    let whole = Tar::default().file("a", "x").file("b", &"y".repeat(600)).end();
    for cut in [0, 100, 512, 1024, 1024 + 700, whole.len() - 1024] {
        refused("cut", &whole[..cut], "not a whole tar archive");
    }
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    refused("checksum", &flipped, "not a whole tar archive");
    refused("noise", &[7; 2048], "not a whole tar archive");
    let zip = zipped(&whole);
    let scratch = Scratch::new();
    assert!(into(&scratch, &zip[..zip.len() - 30]).is_err());
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 0);
}

#[test]
fn archive_bombs_stop_at_limits() {
    struct Endless(Vec<u8>, usize, u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(self.0.len() - self.1);
            buffer[..count].copy_from_slice(&self.0[self.1..self.1 + count]);
            self.1 = (self.1 + count) % self.0.len();
            self.2 += count as u64;
            Ok(count)
        }
    }
    let scratch = Scratch::new();
    let many = (0..1000).fold(Tar::default(), |tar, number| tar.file(&format!("{number}"), ""));
    assert!(matches!(
        into(&scratch, &many.end()),
        Err(ArchiveError::TooMany { entries_max: 100 })
    ));
    // Global headers do not count as entries, but are bounded too.
    let mut globals = Endless(Tar::default().pax(b'g', &[("comment", "x")]).0, 0, 0);
    assert!(unpack(scratch.root(), None, &mut globals, LIMITS).is_err());
    assert!(globals.2 < 1 << 20, "{}", globals.2);
    // A file of a terabyte is refused because of its header.
    let large = Tar::default().with(b'0', b"large", b"", |header| header.set_size(1 << 40));
    let mut read = Endless(large.0, 0, 0);
    let refused = unpack(scratch.root(), None, &mut read, LIMITS);
    assert!(
        matches!(refused, Err(ArchiveError::TooLarge { .. })),
        "{refused:?}"
    );
    assert!(read.2 < 1 << 20, "{}", read.2);
    // The content of a global header is bounded too.
    let huge = Tar::default().with(b'g', b"g", b"", |header| header.set_size(u64::MAX >> 2));
    assert!(into(&scratch, &huge.end()).is_err());
    // A gzip bomb: 64 MiB of zeros in a file that may have 64 KiB.
    let zeros = Tar::default().entry(b'0', b"zeros", &vec![0; 64 << 20]).end();
    let bomb = zipped(&zeros);
    assert!(bomb.len() < 100_000, "the control: it is a bomb");
    assert!(matches!(
        into(&scratch, &bomb),
        Err(ArchiveError::TooLarge { .. })
    ));
    // An archive within the archive is an ordinary file and is not unpacked.
    let inner = zipped(&Tar::default().file("inner", "x").end());
    into(
        &scratch,
        &Tar::default().entry(b'0', b"quine.tar.gz", &inner).end(),
    )
    .unwrap();
    assert_eq!(fs::read(scratch.path("quine.tar.gz")).unwrap(), inner);
    assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 1);
}

#[test]
fn unpack_over_anything_but_regular_file_is_refused_and_changes_nothing() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.outside("beyond")).unwrap();
    fs::write(scratch.outside("beyond/file"), "canary").unwrap();
    fs::write(scratch.path("kept"), "old").unwrap();
    fs::write(scratch.path("file"), "old").unwrap();
    fs::create_dir(scratch.path("directory")).unwrap();
    symlink(scratch.outside("beyond"), scratch.path("link")).unwrap();
    symlink(scratch.outside("beyond/file"), scratch.path("link_to_file")).unwrap();
    fs::hard_link(scratch.outside("beyond/file"), scratch.path("hard")).unwrap();
    for name in [
        "directory",
        "link",
        "link/file",
        "link/new",
        "link_to_file",
        "hard",
        "file/x",
        "file/x/y",
    ] {
        let archive = Tar::default()
            .file("kept", "new")
            .file("fresh/x", "new")
            .file(name, "new")
            .end();
        let refused = into(&scratch, &archive);
        assert!(
            matches!(refused, Err(ArchiveError::Tree(_))),
            "{name}: {refused:?}"
        );
        assert_eq!(fs::read(scratch.path("kept")).unwrap(), b"old", "{name}");
        assert_eq!(fs::read_dir(scratch.path("")).unwrap().count(), 6, "{name}");
        assert_eq!(
            fs::read(scratch.outside("beyond/file")).unwrap(),
            b"canary",
            "{name}"
        );
        assert_eq!(
            fs::read_dir(scratch.outside("beyond")).unwrap().count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn packed_directory_unpacks_unchanged() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let deep = format!("top/{}/{}", "d".repeat(120), "f".repeat(120));
    fs::create_dir_all(from.path(&deep).parent().unwrap()).unwrap();
    fs::write(from.path(&deep), "deep").unwrap();
    fs::create_dir(from.path("top/empty")).unwrap();
    fs::write(from.path("top/tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(from.path("top/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(from.outside("canary"), "canary").unwrap();
    symlink(from.outside("canary"), from.path("top/link")).unwrap();
    fs::hard_link(from.outside("canary"), from.path("top/hard")).unwrap();
    let mut archive = Vec::new();
    let top = "top".parse().unwrap();
    let packed = pack(from.root(), Some(&top), &mut archive, up_to(LIMITS), unredacted).unwrap();
    assert_eq!((packed.entries, packed.bytes), (4, 14));
    assert_eq!(packed.skipped, ["top/hard", "top/link"].map(Path::new));
    assert!(!archive.windows(6).any(|window| window == b"canary"));
    let elsewhere = "a/top".parse().unwrap();
    unpack(to.root(), Some(&elsewhere), archive.as_slice(), LIMITS).unwrap();
    assert_eq!(fs::read(to.path(Path::new("a").join(&deep))).unwrap(), b"deep");
    assert!(to.path("a/top/empty").is_dir());
    let (old, new) = (from.path("top/tool"), to.path("a/top/tool"));
    let meta = |path| {
        fs::metadata(path)
            .map(|found| (found.mode(), found.mtime()))
            .unwrap()
    };
    assert_eq!(meta(old), meta(new));
    let few = Limits { bytes: 13, ..LIMITS };
    assert!(pack(from.root(), Some(&top), io::sink(), up_to(few), unredacted).is_err());
}

#[test]
fn cleaned_file_is_packed_with_its_new_size() {
    let (from, to) = (Scratch::new(), Scratch::new());
    fs::write(from.path("before"), "a hunter2 b").unwrap();
    fs::write(from.path("hunter2.txt"), "its name alone").unwrap();
    fs::write(from.path("next"), "next").unwrap();
    fn clean(bytes: &[u8]) -> Cow<'_, [u8]> {
        let text = str::from_utf8(bytes).unwrap();
        text.replace("hunter2", "[a longer word]").into_bytes().into()
    }
    let mut archive = Vec::new();
    let packed = pack(from.root(), None, &mut archive, up_to(LIMITS), clean).unwrap();
    assert_eq!(packed.skipped, [Path::new("hunter2.txt")]);
    assert!(!archive.windows(7).any(|window| window == b"hunter2"));
    unpack(to.root(), None, archive.as_slice(), LIMITS).unwrap();
    assert_eq!(fs::read(to.path("before")).unwrap(), b"a [a longer word] b");
    assert_eq!(fs::read(to.path("next")).unwrap(), b"next");
}
