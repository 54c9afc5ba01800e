//! Atomic replacement of a file: at any moment the old file or the new one is complete on the
//! disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::StateError;

/// The steps of a replacement. The tests have a disk that loses its power between any two of
/// them.
pub(super) trait Disk {
    type File: Write;

    /// Creates an empty file, replacing one of that name. Only its owner may read it: its
    /// contents allow keys that collide to be constructed.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    /// Flushes the contents of a file to the disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// Renames a file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Flushes the names in a directory to the disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct Os;

/// Replaces the file at `path` by the output of `write`. The output goes to another name in the
/// same directory, and is renamed only once all of it is on the disk.
pub(super) fn replace<D: Disk, T>(
    disk: &D,
    path: &Path,
    write: impl FnOnce(D::File, &Path) -> Result<(D::File, T), StateError>,
) -> Result<T, StateError> {
    let new = with_suffix(path, "new");
    let made = disk.create(&new).map_err(failed("create", &new));
    let written = made.and_then(|file| write(file, &new)).and_then(|(file, written)| {
        disk.sync(&file).map_err(failed("sync", &new))?;
        Ok(written)
    });
    let written = written.inspect_err(|_| {
        // An incomplete file is useless, and may have filled the disk.
        let _ = disk.remove(&new);
    })?;
    disk.rename(&new, path).map_err(failed("replace", path))?;
    // The new name must be on the disk too.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    disk.sync_directory(directory).map_err(failed("sync the directory", directory))?;
    Ok(written)
}

impl Disk for Os {
    type File = File;

    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    #[cfg(unix)]
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    /// Does nothing: elsewhere a directory cannot be opened, and a rename is on the disk when it
    /// returns.
    #[cfg(not(unix))]
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

pub(super) fn failed(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StateError + use<> {
    let path = path.to_path_buf();
    move |source| StateError::Io { doing, path, source }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::rc::Rc;

    use super::*;

    const PATH: &str = "/state/counters";
    const OLD: &[u8] = b"old";
    const NEW: &[u8] = b"new, and longer";

    type Names = HashMap<PathBuf, usize>;

    /// The state of a disk, and its state after a loss of power.
    #[derive(Debug, Default)]
    struct World {
        /// The contents, and `true` if they are on the disk: otherwise a power cut may leave
        /// anything.
        files: Vec<(Vec<u8>, bool)>,
        names: Names,
        /// The names that are surely on the disk. Those in force may be there too, or not.
        durable: Names,
        steps: usize,
        /// The step that fails.
        fails_at: Option<usize>,
        /// `true` if no file can be completed, as on a full disk.
        is_full: bool,
    }

    #[derive(Clone, Debug)]
    struct Model(Rc<RefCell<World>>);

    struct Handle(Model, usize);

    impl World {
        fn contents(&self, names: &Names) -> &(Vec<u8>, bool) {
            &self.files[names[Path::new(PATH)]]
        }

        /// Advances by one step. The file must be complete on the disk before it and after it.
        fn step(&mut self) -> io::Result<()> {
            for names in [&self.names, &self.durable] {
                let (contents, is_durable) = self.contents(names);
                assert!(
                    *is_durable,
                    "step {}: a loss of power would leave part of a file",
                    self.steps
                );
                assert!(contents == OLD || contents == NEW, "step {}: {contents:?}", self.steps);
            }
            self.steps += 1;
            if self.fails_at == Some(self.steps) { Err(io::Error::other("no")) } else { Ok(()) }
        }
    }

    impl Model {
        fn new(fails_at: Option<usize>, is_full: bool) -> Self {
            let names = HashMap::from([(PathBuf::from(PATH), 0)]);
            let (files, durable) = (vec![(OLD.to_vec(), true)], names.clone());
            let world = World { files, names, durable, fails_at, is_full, ..World::default() };
            Self(Rc::new(RefCell::new(world)))
        }

        fn replace(&self) -> Result<(), StateError> {
            replace(self, Path::new(PATH), |mut file, path| {
                for chunk in NEW.chunks(4) {
                    file.write_all(chunk).map_err(failed("write", path))?;
                }
                Ok((file, ()))
            })
        }
    }

    impl Write for Handle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut world = self.0.0.borrow_mut();
            world.step()?;
            let is_full = world.is_full;
            let (contents, is_durable) = &mut world.files[self.1];
            if is_full && contents.len() > 4 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            contents.extend_from_slice(bytes);
            *is_durable = false;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Disk for Model {
        type File = Handle;

        fn create(&self, path: &Path) -> io::Result<Handle> {
            let mut world = self.0.borrow_mut();
            world.step()?;
            let next = world.files.len();
            let file = *world.names.entry(path.to_path_buf()).or_insert(next);
            world.files.resize(next.max(file + 1), (Vec::new(), false));
            world.files[file] = (Vec::new(), false);
            Ok(Handle(self.clone(), file))
        }

        fn sync(&self, file: &Handle) -> io::Result<()> {
            let mut world = self.0.borrow_mut();
            world.step()?;
            world.files[file.1].1 = true;
            Ok(())
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            let mut world = self.0.borrow_mut();
            world.step()?;
            let file = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            world.names.insert(to.to_path_buf(), file);
            Ok(())
        }

        fn sync_directory(&self, path: &Path) -> io::Result<()> {
            assert_eq!(path, Path::new("/state"));
            let mut world = self.0.borrow_mut();
            world.step()?;
            world.durable = world.names.clone();
            Ok(())
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            let mut world = self.0.borrow_mut();
            world.step()?;
            world.names.remove(path);
            Ok(())
        }
    }

    #[test]
    fn power_lost_at_any_step_leaves_a_whole_file() {
        let model = Model::new(None, false);
        model.replace().unwrap();
        let mut world = model.0.borrow_mut();
        world.step().unwrap();
        assert_eq!(world.contents(&world.durable).0, NEW, "the new one is there for good");
        assert_eq!(world.names.len(), 1, "and nothing else");
    }

    #[test]
    fn a_step_that_fails_leaves_a_whole_file() {
        let steps = {
            let model = Model::new(None, false);
            model.replace().unwrap();
            model.0.borrow().steps
        };
        for fails_at in 1..=steps {
            let model = Model::new(Some(fails_at), false);
            assert!(model.replace().is_err(), "step {fails_at}");
            let mut world = model.0.borrow_mut();
            world.step().unwrap();
            assert!(
                fails_at + 1 >= steps || world.names.len() == 1,
                "step {fails_at}: half a file"
            );
        }
        let full = Model::new(None, true);
        assert!(full.replace().is_err());
        let mut world = full.0.borrow_mut();
        world.step().unwrap();
        assert_eq!((&*world.contents(&world.durable).0, world.names.len()), (OLD, 1));
    }
}
