//! A directory of the operator into which artifacts are copied under names that a program chose. It is opened once,
//! before anything runs: neither a change of its path nor a link in it leads a copy elsewhere.

use ringfence_sys::file;
use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::Path,
};

#[derive(Debug)]
pub struct ExportDirectory {
    directory: File,
}

impl ExportDirectory {
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let directory = File::open(path)?;
        if !directory.metadata()?.is_dir() {
            return Err(io::Error::from(io::ErrorKind::NotADirectory));
        }
        Ok(Self { directory })
    }

    /// Creates a new file below it, with its directories; no link is followed and nothing is replaced.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        let above: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .filter(|part| !part.as_os_str().is_empty())
            .collect();
        for directory in above.into_iter().rev() {
            file::make_directory_beneath(self.directory.as_fd(), directory)?;
        }
        file::create_new_beneath(self.directory.as_fd(), path)
    }

    /// Changes the owner of a directory below it; no link is followed.
    pub fn chown(&self, path: &Path, uid: u32, gid: u32) -> io::Result<()> {
        let directory = file::open_listing_beneath(self.directory.as_fd(), path)?;
        file::change_owner(directory.as_fd(), uid, gid)
    }

    pub fn remove(&self, path: &Path) -> io::Result<()> {
        file::remove_file_beneath(self.directory.as_fd(), path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn changed_export_path_redirects_no_write() {
        let base = std::env::temp_dir().join(format!("ringfence-export-{}", std::process::id()));
        drop(fs::remove_dir_all(&base));
        let (out, elsewhere) = (base.join("out"), base.join("elsewhere"));
        fs::create_dir_all(&elsewhere).unwrap();
        let exports = ExportDirectory::open(&out).unwrap();
        exports.create(Path::new("a/b/c.txt")).unwrap();
        assert!(out.join("a/b/c.txt").is_file());
        assert!(
            exports.create(Path::new("a/b/c.txt")).is_err(),
            "nothing is replaced"
        );
        symlink(&elsewhere, out.join("link")).unwrap();
        symlink(elsewhere.join("new"), out.join("dangling")).unwrap();
        for name in ["link/c.txt", "link/d/c.txt", "dangling", "../c.txt", "/c.txt"] {
            assert!(exports.create(Path::new(name)).is_err(), "{name}");
        }
        fs::rename(&out, base.join("old")).unwrap();
        symlink(&elsewhere, &out).unwrap();
        exports.create(Path::new("late.txt")).unwrap();
        assert!(base.join("old/late.txt").is_file());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_dir_all(&base).unwrap();
    }
}
