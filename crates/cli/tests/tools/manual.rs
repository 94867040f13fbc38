//! `completions` and `man`: what they print names every command and no hidden one.

use super::*;

pub(super) const COMMANDS: [&str; 14] = [
    "demo",
    "info",
    "map",
    "stat",
    "dump",
    "verify",
    "salvage",
    "repair",
    "restore",
    "backup",
    "streams",
    "doctor",
    "completions",
    "man",
];

fn printed(args: &[&str]) -> String {
    let output = words(args).output().unwrap();
    assert_eq!((code(&output), err(&output)), (0, String::new()), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_shell_gets_completions_of_all_commands_and_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = printed(&["completions", shell]);
        for word in COMMANDS.into_iter().chain(["poll-ms", "dry-run"]) {
            assert!(script.contains(word), "{word} is not in the completions for {shell}");
        }
        for hidden in ["doctor-guard", "demo-child"] {
            assert!(!script.contains(hidden), "{hidden} is in the completions for {shell}");
        }
    }
}

#[test]
fn bash_accepts_its_completions() {
    let check = "complete -p palisade && _palisade palisade sal palisade";
    let script = format!(
        "{}\nCOMP_WORDS=(palisade sal) COMP_CWORD=1\n{check}\necho ${{COMPREPLY[@]}}",
        printed(&["completions", "bash"])
    );
    let Ok(output) = Command::new("bash").args(["--norc", "-c", &script]).output() else {
        return; // No bash here.
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("salvage\n"), "{text}");
}

#[test]
fn the_manual_has_a_page_for_all_and_one_for_each_command() {
    let all = printed(&["man"]);
    assert!(all.contains(".TH palisade 1"), "{all}");
    for command in COMMANDS {
        assert!(all.contains(&format!("palisade\\-{command}(1)")), "{command}: {all}");
        let page = printed(&["man", command]);
        assert!(page.contains(&format!(".TH palisade-{command} 1")), "{page}");
        assert!(page.contains("Exit codes:"), "{page}");
    }
    assert!(!all.contains("device"), "{all}");
}

#[test]
fn an_unknown_shell_or_command_is_wrong_usage() {
    for args in [["completions", "tcsh"], ["man", "demo-child"], ["man", "nonsense"]] {
        let output = words(&args).output().unwrap();
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{output:?}");
    }
}
