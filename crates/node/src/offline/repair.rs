//! `pharos storage repair`.

use std::fmt::Write as _;
use std::path::PathBuf;

use pharos_metadata::MetadataStore as _;
use pharos_storage::offline::{Access, PlannedAction, Refusal, RepairPlan};
use pharos_types::TopicName;
use serde_json::json;

use super::{Asked, EXIT_DAMAGED, print, progress};

/// Says what would be repaired, and repairs it with `--yes`. Says how the process ends.
pub(super) fn run(asked: &Asked<'_>) -> anyhow::Result<u8> {
    let yes = asked.matches.get_flag("yes");
    if let Some(topic) = asked.matches.get_one::<String>("forget-cursors") {
        return forget_cursors(asked, topic, yes);
    }
    let offline = asked.open(if yes { Access::Change } else { Access::Look })?;
    let mut plan = offline.plan(&mut progress())?;
    // The engine's repair knows nothing of the metadata; what a broker can put right there it does at its start.
    let has_ledgers = offline
        .overview(&mut progress())
        .is_ok_and(|overview| overview.ledgers().next().is_some());
    if let Some(why) = asked.metadata(Some(has_ledgers)).refusal() {
        plan.refused.push(Refusal {
            file: PathBuf::new(),
            why: format!("{why}; only a copy of the metadata directory helps"),
        });
    }
    if !asked.json {
        print(&announced(&plan, yes))?;
    }
    if yes {
        let mut told = Ok(());
        let json = asked.json;
        offline.repair(&plan, &mut |action| {
            if told.is_ok() && !json {
                told = print(&format!("done           {}\n", action.file.display()));
            }
        })?;
        told?;
    }
    if asked.json {
        print(&format!("{:#}\n", in_json(&plan, yes)))?;
    } else if !plan.actions.is_empty() {
        print(if yes {
            "Check again with: pharos storage check. What was changed is kept as *.before-repair.\n"
        } else {
            "Nothing was changed. Do it with --yes.\n"
        })?;
    }
    let left = !plan.refused.is_empty() || !yes && !plan.actions.is_empty();
    Ok(if left { EXIT_DAMAGED } else { 0 })
}

/// Makes a topic forget its subscriptions, so that it opens although they cannot be read.
fn forget_cursors(asked: &Asked<'_>, topic: &str, yes: bool) -> anyhow::Result<u8> {
    let topic: TopicName = topic.parse()?;
    // No broker may have them open meanwhile.
    let _offline = asked.open(if yes { Access::Change } else { Access::Look })?;
    let owners = asked.owners();
    anyhow::ensure!(owners.known, "{}", owners.problems.join("; "));
    let Some(name) = owners.name_of(&topic) else {
        anyhow::bail!("there is no topic {topic}");
    };
    let Some((ledger, _)) = owners
        .of_topic(&topic)
        .into_iter()
        .find(|(_, owner)| owner.cursors)
    else {
        print(&format!("nothing to forget: {topic} has no subscriptions\n"))?;
        return Ok(0);
    };
    if !yes {
        print(&format!(
            "would forget   the subscriptions of {topic} (ledger {ledger}); its messages stay\n\
             Nothing was changed. Do it with --yes.\n"
        ))?;
        return Ok(EXIT_DAMAGED);
    }
    let metadata = crate::broker::open_metadata(&asked.effective.settings, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        pharos_managed_ledger::forget_cursors(&name, &*metadata).await?;
        metadata.shutdown().await;
        anyhow::Ok(())
    })?;
    print(&format!(
        "forgotten      the subscriptions of {topic} (ledger {ledger}); its messages stay\n"
    ))?;
    Ok(0)
}

fn announced(plan: &RepairPlan, yes: bool) -> String {
    let word = if yes { "repair" } else { "would repair" };
    let mut out = String::new();
    for action in &plan.actions {
        let _ = write!(out, "{word:13}  {}: {}", action.file.display(), action.what);
        match backup(action) {
            Some(backup) => {
                let _ = writeln!(out, "; kept as {backup}");
            }
            None => out.push('\n'),
        }
    }
    for refusal in &plan.refused {
        let _ = match refusal.file.as_os_str().is_empty() {
            true => writeln!(out, "left alone     {}", refusal.why),
            false => writeln!(out, "left alone     {}: {}", refusal.file.display(), refusal.why),
        };
    }
    if plan.actions.is_empty() && plan.refused.is_empty() {
        out.push_str("nothing to repair\n");
    }
    out
}

fn backup(action: &PlannedAction) -> Option<String> {
    let name = action.backup.as_ref()?.file_name()?;
    Some(name.to_string_lossy().into_owned())
}

fn in_json(plan: &RepairPlan, done: bool) -> serde_json::Value {
    let actions = plan.actions.iter();
    let actions =
        actions.map(|action| json!({ "file": action.file, "what": action.what, "backup": action.backup }));
    let refused = plan.refused.iter();
    let refused = refused.map(|refusal| json!({ "file": refusal.file, "why": refusal.why }));
    json!({
        "done": done,
        "actions": actions.collect::<Vec<_>>(),
        "left_alone": refused.collect::<Vec<_>>(),
    })
}
