//! A repair on a simulated disk, whose copy takes the log's place.

use std::path::Path;

use palisade::sim::SimDisk;
use palisade::{CopyReport, Lsn, Repair, Result};

const LOG: &str = "/log";
const COPY: &str = "/repaired";

/// Repairs the log, and puts the copy in its place. Removes what an earlier repair has left.
pub(crate) fn repair_in_place(disk: &SimDisk, from: Lsn) -> Result<CopyReport> {
    for name in disk.files_in(COPY) {
        disk.remove_file(&format!("{COPY}/{name}"));
    }
    let at = |path| std::path::absolute(Path::new(path)).unwrap();
    let planned = Repair::plan_on(disk.as_disk(), at(LOG), from, &mut |_| {})?;
    let report = planned.write_on(disk.as_disk(), at(COPY), &mut |_| {})?;
    disk.replace_log(COPY);
    Ok(report)
}
