//! The module files of a crate and what they import of each other, read from the text.
//!
//! A module is a file. It imports another file of its crate when it names something of it: in a `use`, or in a path that
//! begins with `crate`, `self` or `super`. A name that a module only passes on (`pub use`) is followed to the file that has it,
//! and passing on is no import. Tests are left out, here and in [`product_lines`].

use std::collections::{BTreeMap, BTreeSet};

/// For each file of a crate the other files that it imports from.
pub(crate) type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The files of one crate by the path of their module: `topic::load` for `src/topic/load.rs`, nothing for the root.
struct Modules<'a> {
    files: BTreeMap<String, Module<'a>>,
}

struct Module<'a> {
    path: &'a str,
    /// Its text without tests, comments and `use` declarations.
    code: String,
    /// Whole paths from the crate's root that the file names.
    named: Vec<Vec<String>>,
    /// Names that it has from elsewhere, each with its path from the crate's root. Children see them too.
    passed_on: Vec<(String, Vec<String>)>,
}

impl<'a> Modules<'a> {
    /// Reads the files of a crate: path inside `src`, and text.
    fn read(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let files: Vec<_> = files
            .into_iter()
            .filter(|(path, _)| !is_test_file(path))
            .collect();
        let places: BTreeSet<Vec<&str>> = files.iter().map(|(path, _)| place_of(path)).collect();
        let mut modules = BTreeMap::new();
        for (path, text) in files {
            let place = place_of(path);
            let code = without_comments(product_text(text));
            let mut module = Module {
                path,
                code: String::new(),
                named: Vec::new(),
                passed_on: Vec::new(),
            };
            module.code = read_uses(&code, &place, &mut module);
            read_paths(
                &module.code,
                &place,
                &children(&places, &place),
                &mut module.named,
            );
            modules.insert(place.join("::"), module);
        }
        Self { files: modules }
    }

    fn imports(&self) -> Graph<'a> {
        let mut graph = BTreeMap::new();
        for module in self.files.values() {
            let of = |path: &Vec<String>| self.file_of(path, 0).filter(|file| *file != module.path);
            graph.insert(module.path, module.named.iter().filter_map(of).collect());
        }
        graph
    }

    /// The file that has what `path` names. A path into another crate leads to the file that names it.
    fn file_of(&self, path: &[String], depth: u32) -> Option<&'a str> {
        let longest = (0..=path.len()).rev();
        let mut found = longest.filter_map(|used| Some((self.files.get(&path[..used].join("::"))?, used)));
        let (module, used) = found.next()?;
        let known = path.get(used).filter(|_| depth < 8);
        let known = known.and_then(|name| module.passed_on.iter().find(|(passed, _)| passed == name));
        let Some((_, target)) = known else {
            // A name that the file does not have is another crate's, or stands in a text that the file writes.
            let has = path.get(used).is_none_or(|name| defines(&module.code, name));
            return has.then_some(module.path);
        };
        let whole: Vec<String> = target.iter().chain(&path[used + 1..]).cloned().collect();
        self.file_of(&whole, depth + 1)
    }
}

/// Imports of each file from the others; see [`Modules::imports`].
pub(crate) fn imports<'a>(files: &[(&'a str, &'a str)]) -> Graph<'a> {
    Modules::read(files.iter().copied()).imports()
}

/// The sets of files that import each other in a circle, each sorted, of at least two files.
pub(crate) fn circles<'a>(graph: &Graph<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (*file, reach(graph, file))).collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (file, others) in &reached {
        if seen.contains(file) || !others.contains(file) {
            continue;
        }
        let circle: Vec<&str> = others
            .iter()
            .copied()
            .filter(|other| reached[other].contains(file))
            .collect();
        seen.extend(circle.iter().copied());
        circles.push(circle);
    }
    circles
}

fn reach<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&str> = graph[from].iter().copied().collect();
    while let Some(file) = next.pop() {
        if reached.insert(file) {
            next.extend(graph[file].iter().copied());
        }
    }
    reached
}

/// Lines of a file that are no test, blank lines and comments counted; 0 for a file of tests.
pub(crate) fn product_lines(path: &str, text: &str) -> usize {
    product_part(path, text).lines().count()
}

/// The text of a file without its tests; nothing of a file of tests.
pub(crate) fn product_part<'a>(path: &str, text: &'a str) -> &'a str {
    if is_test_file(path) {
        ""
    } else {
        product_text(text)
    }
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "tests.rs"))
}

/// The text up to the tests at the end of the file.
fn product_text(text: &str) -> &str {
    let starts = text.match_indices("\n#[cfg(test)]\nmod ").map(|(at, _)| at);
    // `mod tests;` in the middle of a file ends nothing.
    let mut bodies = starts.filter(|at| text[*at..].lines().nth(2).is_some_and(|line| line.ends_with('{')));
    bodies.next().map_or(text, |at| &text[..=at])
}

/// Names of the modules right below `place`.
fn children<'a>(places: &BTreeSet<Vec<&'a str>>, place: &[&str]) -> Vec<&'a str> {
    let below = places
        .iter()
        .filter(|other| other.len() == place.len() + 1 && other.starts_with(place));
    below.filter_map(|other| other.last().copied()).collect()
}

/// True if the code defines an item called `name`.
fn defines(code: &str, name: &str) -> bool {
    let is_item = |before: &str| {
        let word = before
            .trim_end()
            .rsplit(|c: char| !(c.is_alphanumeric() || c == '!' || c == '_'))
            .next();
        let words = [
            "struct",
            "enum",
            "union",
            "fn",
            "const",
            "static",
            "type",
            "trait",
            "mod",
            "mut",
            "macro_rules!",
        ];
        before.ends_with(' ') && word.is_some_and(|word| words.contains(&word))
    };
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let mut places = code.match_indices(name);
    places.any(|(at, _)| is_item(&code[..at]) && !code[at + name.len()..].starts_with(joins))
}

/// `topic/mod.rs` is `["topic"]`, `lib.rs` is `[]`.
fn place_of(path: &str) -> Vec<&str> {
    let mut place: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if matches!(place.last(), Some(&("mod" | "lib" | "main"))) {
        place.pop();
    }
    place
}

fn without_comments(text: &str) -> String {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Takes the `use` declarations out of `code`; the rest is returned.
fn read_uses(code: &str, place: &[&str], module: &mut Module<'_>) -> String {
    let mut rest = String::new();
    let mut open = None::<(bool, String)>;
    for line in code.lines() {
        let bare = line.trim_start();
        if open.is_none() {
            let public = bare.starts_with("pub");
            let start = if public {
                bare.split_once("use ")
                    .filter(|(before, _)| is_visibility(before))
            } else {
                None
            };
            let start = start.map(|(_, tree)| tree).or_else(|| bare.strip_prefix("use "));
            match start {
                Some(tree) => open = Some((public, tree.to_owned())),
                None => {
                    rest.push_str(line);
                    rest.push('\n');
                    continue;
                }
            }
        } else if let Some((_, tree)) = &mut open {
            tree.push_str(bare);
        }
        if let Some((public, tree)) = open.take_if(|(_, tree)| tree.trim_end().ends_with(';')) {
            let tree = tree
                .trim_end()
                .trim_end_matches(';')
                .replace(char::is_whitespace, " ");
            for (path, name) in leaves(&tree) {
                if let Some(path) = whole(&path, place) {
                    if !public {
                        module.named.push(path.clone());
                    }
                    module.passed_on.push((name, path));
                }
            }
        }
    }
    rest
}

/// `pub `, `pub(crate) `, `pub(super) `, `pub(in …) `.
fn is_visibility(text: &str) -> bool {
    let text = text.trim();
    text == "pub" || (text.starts_with("pub(") && text.ends_with(')'))
}

/// The paths of a `use` tree, each with the name it has afterwards.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let last = path.last().cloned().unwrap_or_default();
        let name = if alias.is_empty() {
            last
        } else {
            alias.trim().to_owned()
        };
        return vec![(path, name)];
    };
    let before: Vec<String> = before
        .split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect();
    let group = group.trim_end().trim_end_matches('}');
    let mut found = Vec::new();
    for branch in branches(group) {
        for (path, name) in leaves(branch) {
            let is_self = path.as_slice() == ["self"];
            let name = if is_self && name == "self" {
                before.last().cloned().unwrap_or_default()
            } else {
                name
            };
            let tail = path.into_iter().filter(|part| part != "self");
            found.push((before.iter().cloned().chain(tail).collect(), name));
        }
    }
    found
}

/// The parts between the commas that stand in no inner braces.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(group[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(group[start..].trim());
    found.retain(|branch| !branch.is_empty());
    found
}

/// A path as written in the module at `place`, from the crate's root. One that begins with a name is taken for a child's; when
/// there is no such child, the name is another crate's and the path leads nowhere but to the module itself.
fn whole(path: &[String], place: &[&str]) -> Option<Vec<String>> {
    let owned = |place: &[&str]| place.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>();
    let first = path.first()?.as_str();
    let (mut from, mut used) = match first {
        "" => return None,
        "crate" => (Vec::new(), 1),
        "self" => (owned(place), 1),
        "super" => (owned(place.get(..place.len().checked_sub(1)?)?), 1),
        _ => (owned(place), 0),
    };
    while path.get(used).is_some_and(|part| part == "super") {
        from.pop()?;
        used += 1;
    }
    from.extend(path[used..].iter().filter(|part| *part != "*").cloned());
    Some(from)
}

/// Paths in the code that begin with `crate`, `self`, `super` or the name of a child.
fn read_paths(code: &str, place: &[&str], children: &[&str], named: &mut Vec<Vec<String>>) {
    for start in ["crate", "self", "super"].iter().chain(children) {
        for (at, _) in code.match_indices(&format!("{start}::")) {
            let joined = code[..at]
                .chars()
                .next_back()
                .is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':'));
            let is_visibility = code[..at].ends_with("in ");
            if joined || is_visibility {
                continue;
            }
            let end = code[at..].find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':')));
            let text = &code[at..end.map_or(code.len(), |end| at + end)];
            let path: Vec<String> = text
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect();
            named.extend(whole(&path, place));
        }
    }
}

/// True if the files of a circle are in more than one directory.
pub(crate) fn is_across(circle: &[&str]) -> bool {
    circle.iter().any(|path| directory(path) != directory(circle[0]))
}

/// The directory of a file, nothing for those right in `src`.
pub(crate) fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}
