//! Tables of Markdown.

/// A table; cells that are empty stay empty.
pub(super) fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut text = line(header) + &format!("|{}\n", "---|".repeat(header.len()));
    for row in rows {
        text += &line(row);
    }
    text
}

fn line(cells: &[String]) -> String {
    let escaped: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", escaped.join(" | "))
}
