//! Records what is being built (profile, commit, compiler) for `headrace --version`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The profile's own name: the folder of the target directory that this build goes to
/// (`PROFILE` only ever says "debug" or "release").
fn profile() -> Option<String> {
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR")?);
    // .../target/<profile>/build/<package>-<hash>/out
    let folder = out_dir.ancestors().nth(3).and_then(Path::file_name)?;
    Some(folder.to_string_lossy().into_owned())
}

fn main() {
    let commit = output("git", &["rev-parse", "--short=10", "HEAD"]).map_or_else(
        || "unknown".to_owned(),
        |hash| {
            let dirty = output("git", &["status", "--porcelain", "--untracked-files=no"]);
            if dirty.is_some_and(|d| !d.is_empty()) { hash + "+" } else { hash }
        },
    );
    let rustc = std::env::var("RUSTC").ok().and_then(|r| output(&r, &["--version"]));
    println!("cargo:rustc-env=HEADRACE_COMMIT={commit}");
    println!("cargo:rustc-env=HEADRACE_PROFILE={}", profile().unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rustc-env=HEADRACE_RUSTC={}", rustc.unwrap_or_else(|| "unknown".to_owned()));
    println!("cargo:rerun-if-changed=build.rs");
    // A new commit is a new build: without these the recorded commit would go stale.
    if let Some(head) = output("git", &["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={head}");
    }
    println!("cargo:rerun-if-changed=src");
}
