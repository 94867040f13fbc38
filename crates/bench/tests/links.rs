//! Each relative link of a document leads to a file, and to a heading of it if the link names one.

use std::fs;
use std::path::{Path, PathBuf};

/// The documents below `folder`, without build folders and hidden ones.
fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                documents(&path, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// The text without blocks of code.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors of a document's headings.
fn anchors(text: &str) -> Vec<String> {
    let text = prose(text);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    documents(&root, &mut found);
    let (mut links, mut broken) = (0, Vec::new());
    for document in &found {
        let text = prose(&fs::read_to_string(document).unwrap());
        for link in text.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let link = link.0;
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(file)
            };
            let leads = target.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&target).unwrap())
                        .iter()
                        .any(|heading| heading == anchor));
            if !leads {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(found.len() > 30 && links > 100, "{} documents, {links} links", found.len());
    assert!(broken.is_empty(), "{broken:#?}");
}
