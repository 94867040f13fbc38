//! API.md names each public method and function of `palisade` and `palisade-streams`, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, ImplItem, Item, Type, UseTree, Visibility};

/// A method by its type and its name; a function has no type.
type Call = (Option<String>, String);

/// What the sources of one or more crates have.
#[derive(Default)]
struct Sources {
    methods: BTreeSet<(String, String)>,
    functions: BTreeSet<String>,
    /// The names that the modules of users export.
    exported: BTreeSet<String>,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let hides = |attribute: &&Attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            let words = list.tokens.to_string();
            let is_test = list.path.is_ident("cfg") && (words == "test" || words == "loom");
            is_test || (list.path.is_ident("doc") && words == "hidden")
        }
        _ => false,
    };
    attributes.iter().any(|attribute| hides(&attribute))
}

fn is_public(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    matches!(visibility, Visibility::Public(_)) && !is_hidden(attributes)
}

/// Adds the names at the leaves of a `use`.
fn add_leaves(tree: &UseTree, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => add_leaves(&path.tree, names),
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_leaves(tree, names)),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("write `pub use` with plain names"),
    }
}

impl Sources {
    /// Adds the files below a folder, or one file.
    fn add(&mut self, path: &Path) {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            entries.for_each(|entry| self.add(&entry));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            self.add_items(&parsed(path).items);
        }
    }

    fn add_items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Mod(module) if !is_hidden(&module.attrs) => {
                    self.add_items(module.content.as_ref().map_or(&[], |(_, items)| items));
                }
                Item::Fn(function) if is_public(&function.vis, &function.attrs) => {
                    self.functions.insert(function.sig.ident.to_string());
                }
                Item::Impl(block) if block.trait_.is_none() && !is_hidden(&block.attrs) => {
                    let Type::Path(path) = block.self_ty.as_ref() else { continue };
                    let of = path.path.segments.last().unwrap().ident.to_string();
                    let names = block.items.iter().filter_map(|item| match item {
                        ImplItem::Fn(call) if is_public(&call.vis, &call.attrs) => {
                            Some(call.sig.ident.to_string())
                        }
                        _ => None,
                    });
                    self.methods.extend(names.map(|name| (of.clone(), name)));
                }
                _ => {}
            }
        }
    }

    /// Adds the names that a module exports.
    fn export(&mut self, module: &Path) {
        for item in parsed(module).items {
            match item {
                Item::Use(item) if is_public(&item.vis, &item.attrs) => {
                    add_leaves(&item.tree, &mut self.exported);
                }
                Item::Struct(item) if is_public(&item.vis, &item.attrs) => {
                    self.exported.insert(item.ident.to_string());
                }
                Item::Fn(item) if is_public(&item.vis, &item.attrs) => {
                    self.exported.insert(item.sig.ident.to_string());
                }
                _ => {}
            }
        }
    }

    /// The calls of the exported names.
    fn calls(&self) -> BTreeSet<Call> {
        let is_exported = |name: &String| self.exported.contains(name);
        let methods = self.methods.iter().filter(|(of, _)| is_exported(of)).cloned();
        let methods = methods.map(|(of, name)| (Some(of), name));
        let functions = self.functions.iter().filter(|name| is_exported(name)).cloned();
        methods.chain(functions.map(|name| (None, name))).collect()
    }
}

fn parsed(path: &Path) -> syn::File {
    syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The calls in the first cells of the tables in a part of API.md. A name without a type belongs to
/// the type before it in its cell, or else to the one at the head of the table.
fn named(part: &str) -> BTreeSet<Call> {
    let mut calls = BTreeSet::new();
    let mut of_table = None;
    let mut was_table = false;
    for line in part.lines() {
        let is_table = line.starts_with('|');
        let first = line.trim_start_matches('|').split(" | ").next().unwrap().trim();
        if is_table && !was_table {
            of_table = (first.starts_with('`')).then(|| first.trim_matches('`').to_owned());
        } else if is_table {
            let mut of = of_table.clone();
            for quoted in first.split('`').skip(1).step_by(2) {
                let Some((path, _)) = quoted.split_once('(') else { continue };
                let (before, name) = path.rsplit_once("::").unwrap_or(("", path));
                let of_name = before.rsplit("::").next().unwrap();
                if of_name.starts_with(char::is_uppercase) {
                    of = Some(of_name.into());
                } else if !of_name.is_empty() {
                    of = None;
                }
                calls.insert((of.clone(), name.into()));
            }
        }
        was_table = is_table;
    }
    calls
}

#[track_caller]
fn assert_same(public: &BTreeSet<Call>, named: &BTreeSet<Call>) {
    let missing: Vec<_> = public.difference(named).collect();
    let extra: Vec<_> = named.difference(public).collect();
    assert!(missing.is_empty(), "API.md lacks a row for {missing:?}");
    assert!(extra.is_empty(), "API.md names what is not public: {extra:?}");
}

#[test]
fn the_page_of_calls_names_each_public_call_and_no_other() {
    let page = fs::read_to_string(crates().join("../API.md")).unwrap();
    let begin = page.find("## Opening and closing").unwrap();
    let streams_begin = page.find("## Streams: crate").unwrap();

    let mut palisade = Sources::default();
    let mut streams = Sources::default();
    for part in ["palisade/src", "core/src", "store/src"] {
        palisade.add(&crates().join(part));
    }
    streams.add(&crates().join("streams/src"));
    for module in [
        "palisade/src/lib.rs",
        "palisade/src/inspect.rs",
        "palisade/src/disk.rs",
        "core/src/conformance.rs",
        "store/src/sim/mod.rs",
    ] {
        palisade.export(&crates().join(module));
    }
    streams.export(&crates().join("streams/src/lib.rs"));

    let public = palisade.calls();
    assert!(public.len() > 250, "{}", public.len());
    assert_same(&public, &named(&page[begin..streams_begin]));
    let public = streams.calls();
    assert!(public.len() > 100, "{}", public.len());
    assert_same(&public, &named(&page[streams_begin..]));
}
