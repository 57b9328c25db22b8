//! Archives that were made to do harm (ATTACKS.md, group I), and such that were not.

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

/// An archive, header by header; nothing is checked on the way.
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
            // The length counts its own digits.
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

fn into(place: &Scratch, archive: &[u8]) -> Result<Unpacked, ArchiveError> {
    unpack(place.root(), None, archive, LIMITS)
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

fn as_it_is(bytes: &[u8]) -> Cow<'_, [u8]> {
    bytes.into()
}

/// Refused, with these words, and nothing is left: neither inside nor beside.
fn refused(name: &str, archive: &[u8], words: &str) {
    let place = Scratch::new();
    fs::write(place.outside("canary"), "canary").unwrap();
    for archive in [archive.to_vec(), zipped(archive)] {
        let text = into(&place, &archive).expect_err(name).to_string();
        assert!(text.contains(words), "{name}: {text}");
        assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0, "{name}");
        assert_eq!(fs::read_dir(place.outside("")).unwrap().count(), 2, "{name}");
        assert_eq!(fs::read(place.outside("canary")).unwrap(), b"canary", "{name}");
    }
}

#[test]
fn a_plain_archive_is_unpacked_plain_or_in_gzip() {
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
        let place = Scratch::new();
        let done = into(&place, &archive).unwrap();
        assert_eq!(done, Unpacked { files: 3, bytes: 17 });
        let tool = fs::metadata(place.path("dir/tool")).unwrap();
        assert_eq!(
            (tool.permissions().mode() & 0o7777, tool.mtime()),
            (0o755, 1_000_000_000)
        );
        assert_eq!(fs::read(place.path("dir/päx")).unwrap(), b"abc");
        assert_eq!(fs::read(place.path(&long)).unwrap(), b"long");
        assert_eq!(
            fs::read_dir(place.path("")).unwrap().count(),
            2,
            "no staging directory"
        );
        // Again: files are replaced.
        into(&place, &archive).unwrap();
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused_with_the_whole_archive() {
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
fn names_that_meet_are_refused() {
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
        // The classic: a link first, then a file through it.
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
        refused("kind", &Tar::default().entry(kind, b"x", b"").end(), "no kind");
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
fn extensions_that_say_two_things_are_refused() {
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
fn half_an_archive_and_no_archive_are_refused() {
    let whole = Tar::default().file("a", "x").file("b", &"y".repeat(600)).end();
    for cut in [0, 100, 512, 1024, 1024 + 700, whole.len() - 1024] {
        refused("cut", &whole[..cut], "not a whole tar archive");
    }
    let mut flipped = whole.clone();
    flipped[3] ^= 1;
    refused("checksum", &flipped, "not a whole tar archive");
    refused("noise", &[7; 2048], "not a whole tar archive");
    let zip = zipped(&whole);
    let place = Scratch::new();
    assert!(into(&place, &zip[..zip.len() - 30]).is_err());
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 0);
}

#[test]
fn a_million_entries_and_bombs_end_at_the_bounds() {
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
    let place = Scratch::new();
    let many = (0..1000).fold(Tar::default(), |tar, number| tar.file(&format!("{number}"), ""));
    assert!(matches!(
        into(&place, &many.end()),
        Err(ArchiveError::TooMany { entries_max: 100 })
    ));
    // Globals are no entries, and still are bounded.
    let mut globals = Endless(Tar::default().pax(b'g', &[("comment", "x")]).0, 0, 0);
    assert!(unpack(place.root(), None, &mut globals, LIMITS).is_err());
    assert!(globals.2 < 1 << 20, "{}", globals.2);
    // A file of a terabyte is refused by its header.
    let large = Tar::default().with(b'0', b"large", b"", |header| header.set_size(1 << 40));
    let mut read = Endless(large.0, 0, 0);
    let refused = unpack(place.root(), None, &mut read, LIMITS);
    assert!(
        matches!(refused, Err(ArchiveError::TooLarge { .. })),
        "{refused:?}"
    );
    assert!(read.2 < 1 << 20, "{}", read.2);
    // The content of what is skipped is not free: a directory with a size.
    let huge = Tar::default().with(b'g', b"g", b"", |header| header.set_size(u64::MAX >> 2));
    assert!(into(&place, &huge.end()).is_err());
    // Gzip: 64 MiB of zeros in a file that may have 64 KiB.
    let zeros = Tar::default().entry(b'0', b"zeros", &vec![0; 64 << 20]).end();
    let bomb = zipped(&zeros);
    assert!(bomb.len() < 100_000, "the control: it is a bomb");
    assert!(matches!(into(&place, &bomb), Err(ArchiveError::TooLarge { .. })));
    // An archive within the archive is a file as any other: nothing unpacks twice.
    let inner = zipped(&Tar::default().file("inner", "x").end());
    into(&place, &Tar::default().entry(b'0', b"quine.tar.gz", &inner).end()).unwrap();
    assert_eq!(fs::read(place.path("quine.tar.gz")).unwrap(), inner);
    assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 1);
}

#[test]
fn what_is_in_the_way_is_refused_and_nothing_is_changed() {
    let place = Scratch::new();
    fs::create_dir(place.outside("beyond")).unwrap();
    fs::write(place.outside("beyond/file"), "canary").unwrap();
    fs::write(place.path("kept"), "old").unwrap();
    fs::write(place.path("file"), "old").unwrap();
    fs::create_dir(place.path("directory")).unwrap();
    symlink(place.outside("beyond"), place.path("link")).unwrap();
    symlink(place.outside("beyond/file"), place.path("link_to_file")).unwrap();
    fs::hard_link(place.outside("beyond/file"), place.path("hard")).unwrap();
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
        let refused = into(&place, &archive);
        assert!(
            matches!(refused, Err(ArchiveError::Tree(_))),
            "{name}: {refused:?}"
        );
        assert_eq!(fs::read(place.path("kept")).unwrap(), b"old", "{name}");
        assert_eq!(fs::read_dir(place.path("")).unwrap().count(), 6, "{name}");
        assert_eq!(
            fs::read(place.outside("beyond/file")).unwrap(),
            b"canary",
            "{name}"
        );
        assert_eq!(
            fs::read_dir(place.outside("beyond")).unwrap().count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn a_directory_is_packed_and_unpacked_elsewhere_as_it_was() {
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
    let packed = pack(from.root(), Some(&top), &mut archive, up_to(LIMITS), as_it_is).unwrap();
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
    assert!(pack(from.root(), Some(&top), io::sink(), up_to(few), as_it_is).is_err());
}

#[test]
fn what_is_cleaned_on_its_way_has_the_size_that_it_leaves_with() {
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
