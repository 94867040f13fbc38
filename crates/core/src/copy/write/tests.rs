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

#[test]
fn only_a_path_that_leads_into_the_source_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (source, missing) = (temp.path().join("source"), temp.path().join("missing"));
    fs::create_dir(&source).unwrap();
    for inside in [source.clone(), source.join("new"), source.join("new/newer")] {
        let error = check_apart(&source, &inside).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*inside)));
    }
    check_apart(&source, &missing).unwrap();
    // The plan of the copy says that there is no such log.
    check_apart(&missing, &source).unwrap();
}
