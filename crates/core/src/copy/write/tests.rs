//! What must hold for the folder of a copy that another process takes meanwhile.

use palisade_store::folder::segment_name;
use palisade_store::{FileOptions, FileStore};

use super::*;

fn begin(into: &Path) -> NewCopy {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    NewCopy { folder: find_empty(&disk, into).unwrap(), made: Vec::new() }
}

#[test]
fn a_folder_taken_before_the_first_segment_is_left_to_its_log() {
    let temp = tempfile::tempdir().unwrap();
    let into = temp.path().join("into");
    let mut copy = begin(&into);
    let other = FileStore::open(&into, &FileOptions::new()).unwrap();
    let before = copy.folder.names().unwrap().len();
    let error = copy.make(&segment_name(7)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    copy.remove();
    assert_eq!(copy.folder.names().unwrap().len(), before);
    drop(other);
    FileStore::open(&into, &FileOptions::new()).unwrap();
}

#[test]
fn no_log_is_made_in_a_folder_in_which_a_copy_has_begun() {
    let temp = tempfile::tempdir().unwrap();
    let into = temp.path().join("into");
    let mut copy = begin(&into);
    copy.make(&segment_name(7)).unwrap();
    let error = FileStore::open(&into, &FileOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    copy.remove();
}
