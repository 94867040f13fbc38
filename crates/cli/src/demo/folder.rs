//! Where the demo's log lies: a folder of the user, or one that is made and removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use crate::exit::Failure;

/// The folder of the demo's log, empty at first.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    // Folders above `path` that are removed with it if nothing else is in them.
    above: Option<[PathBuf; 2]>,
}

impl Folder {
    /// The folder that the user named, or a fresh one below `./target`.
    ///
    /// # Errors
    /// `Usage` if the named folder is not empty, `Io` if it cannot be made.
    pub(crate) fn choose(named: Option<&Path>) -> Result<Folder, Failure> {
        match named {
            Some(path) => Folder::named(path),
            None => Folder::fresh(),
        }
    }

    fn named(path: &Path) -> Result<Folder, Failure> {
        let failure = |source| Failure::io(format!("could not use {}", path.display()), source);
        match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(failure)?,
        }
        if fs::read_dir(path).map_err(failure)?.next().is_some() {
            return Err(Failure::Usage(format!(
                "{} is not empty; the demo needs an empty folder or one that does not exist yet",
                path.display()
            )));
        }
        Ok(Folder { path: path.to_path_buf(), above: None })
    }

    fn fresh() -> Result<Folder, Failure> {
        let target = PathBuf::from("target");
        let demos = target.join("palisade-demo");
        let path = demos.join(process::id().to_string());
        let failure = |source| Failure::io(format!("could not make {}", path.display()), source);
        // What a demo of the same process id left when it was interrupted.
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failure(error)),
            _ => {}
        }
        fs::create_dir_all(&path).map_err(failure)?;
        Ok(Folder { path, above: Some([demos, target]) })
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder if it is not the user's.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn remove(self) -> Result<(), Failure> {
        let Some(above) = self.above else {
            return Ok(());
        };
        fs::remove_dir_all(&self.path).map_err(|source| {
            Failure::io(format!("could not remove {}", self.path.display()), source)
        })?;
        for folder in above {
            // Stays where something else is in it.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}
