//! The routes: one table, from which the router takes what there is and the description what it says of it.

use super::query::{Kind, LIMIT_MAX, Parameter};

/// A method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// The method that a request means; `HEAD` is a `GET` whose body is left out on the way.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "GET" | "HEAD" => Some(Self::Get),
            "POST" => Some(Self::Post),
            "PUT" => Some(Self::Put),
            "PATCH" => Some(Self::Patch),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }

    /// As HTTP spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Blocklist,
    Jobs,
    JobsOverview,
    Job,
    Plan,
    Cancel,
    Checkpoints,
    TakeCheckpoint,
    TakeSavepoint,
    Stop,
    Trigger,
    TaskManagers,
    TaskManager,
    Events,
    Config,
    Health,
    Metrics,
    OpenApi,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    /// The path; parameters in braces. Rows of one path stand together.
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    /// The name of the operation in the description.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Parameter],
    /// The schema of the body, if there is one, and whether it must be there.
    pub(super) body: Option<(&'static str, bool)>,
    /// What it answers, besides what every route may, with the body's schema; none for no body.
    pub(super) answers: &'static [(u16, Option<&'static str>)],
}

const fn flag(name: &'static str, help: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Flag, help, is_required: false }
}

const OFFSET: Parameter = Parameter {
    name: "offset",
    kind: Kind::Number(0, u32::MAX as u64),
    help: "how many entries of the list to leave out",
    is_required: false,
};
const LIMIT: Parameter = Parameter {
    name: "limit",
    kind: Kind::Number(1, LIMIT_MAX),
    help: "how many entries to list; 100 if not given",
    is_required: false,
};
/// The parameters of a list.
pub(super) const PAGE: &[Parameter] = &[OFFSET, LIMIT];

const FORCE: Parameter = flag("force", "whether to go beyond the cap on blocklisted nodes");
const VERBOSE: Parameter = flag("verbose", "whether to warn of ids that are not known yet");
const DRY_RUN: Parameter = flag("dryRun", "whether to tell what would happen and do nothing");
const IGNORE_MISSING: Parameter =
    flag("ignoreMissing", "whether ids that are not blocklisted are no error");
const ADDING: &[Parameter] = &[FORCE, VERBOSE, DRY_RUN];
const REMOVING: &[Parameter] = &[IGNORE_MISSING];
const LISTING: &[Parameter] =
    &[OFFSET, Parameter { help: "how many entries of each list; 10000 if not given", ..LIMIT }];
const AFTER: &[Parameter] = &[
    Parameter {
        name: "after",
        kind: Kind::Number(0, i64::MAX as u64),
        help: "the number of the last event that is known",
        is_required: false,
    },
    LIMIT,
];
const MODE: &[Parameter] = &[Parameter {
    name: "mode",
    kind: Kind::Word(&["cancel"]),
    help: "what to do with the job",
    is_required: true,
}];

const NO_JOB: (u16, Option<&str>) = (404, Some("Errors"));
const BUSY: (u16, Option<&str>) = (429, Some("Errors"));
const CONFLICT: (u16, Option<&str>) = (409, Some("Errors"));
const LATE: (u16, Option<&str>) = (504, Some("Errors"));
const OVER: (u16, Option<&str>) = (503, Some("Errors"));

/// A row that reads.
const fn get(
    path: &'static str,
    operation: Operation,
    id: &'static str,
    summary: &'static str,
    query: &'static [Parameter],
    answers: &'static [(u16, Option<&'static str>)],
) -> Route {
    Route { method: Method::Get, path, operation, id, summary, query, body: None, answers }
}

/// A row that changes something.
const fn change(
    method: Method,
    path: &'static str,
    (operation, id, summary): (Operation, &'static str, &'static str),
    query: &'static [Parameter],
    body: Option<(&'static str, bool)>,
    answers: &'static [(u16, Option<&'static str>)],
) -> Route {
    Route { method, path, operation, id, summary, query, body, answers }
}

const PUT_ANSWERS: &[(u16, Option<&str>)] = &[
    (200, Some("Added")),
    (201, Some("Added")),
    (202, Some("Added")),
    NO_JOB,
    CONFLICT,
    OVER,
    LATE,
];
const DELETE_ANSWERS: &[(u16, Option<&str>)] = &[(204, None), NO_JOB, CONFLICT, OVER, LATE];
const PUT: &str = "Blocklists one, or merges with what is there: 201 new, 202 merged";

/// All routes.
pub(super) const ROUTES: &[Route] = &[
    get(
        "/blocklist",
        Operation::Blocklist,
        "listBlocklist",
        "All blocklisted task managers and nodes (FLIP-224)",
        LISTING,
        &[(200, Some("Blocklist")), NO_JOB, OVER, LATE],
    ),
    change(
        Method::Post,
        "/blocklist/add",
        (Operation::Blocklist, "addToBlocklist", "Blocklists; all entries or none"),
        ADDING,
        Some(("AddToBlocklist", true)),
        &[(200, Some("Added")), NO_JOB, CONFLICT, OVER, LATE],
    ),
    change(
        Method::Post,
        "/blocklist/remove",
        (Operation::Blocklist, "removeFromBlocklist", "Takes items back; all or none"),
        REMOVING,
        Some(("RemoveFromBlocklist", true)),
        &[(200, Some("Empty")), NO_JOB, CONFLICT, OVER, LATE],
    ),
    change(
        Method::Put,
        "/blocklist/nodes/{id}",
        (Operation::Blocklist, "putNode", PUT),
        ADDING,
        Some(("Item", true)),
        PUT_ANSWERS,
    ),
    change(
        Method::Delete,
        "/blocklist/nodes/{id}",
        (Operation::Blocklist, "deleteNode", "Takes a node back"),
        &[],
        None,
        DELETE_ANSWERS,
    ),
    change(
        Method::Put,
        "/blocklist/taskmanagers/{id}",
        (Operation::Blocklist, "putTaskManager", PUT),
        ADDING,
        Some(("Item", true)),
        PUT_ANSWERS,
    ),
    change(
        Method::Delete,
        "/blocklist/taskmanagers/{id}",
        (Operation::Blocklist, "deleteTaskManager", "Takes a task manager back"),
        &[],
        None,
        DELETE_ANSWERS,
    ),
    get("/jobs", Operation::Jobs, "listJobs", "All jobs", PAGE, &[(200, Some("Jobs"))]),
    get(
        "/jobs/overview",
        Operation::JobsOverview,
        "overviewOfJobs",
        "All jobs with their tasks counted",
        PAGE,
        &[(200, Some("JobsOverview"))],
    ),
    get(
        "/jobs/{job}",
        Operation::Job,
        "showJob",
        "A job and its vertices",
        PAGE,
        &[(200, Some("Job")), NO_JOB],
    ),
    change(
        Method::Patch,
        "/jobs/{job}",
        (Operation::Cancel, "cancelJob", "Ends a job at once; its checkpoints stay"),
        MODE,
        None,
        &[(202, Some("Empty")), NO_JOB, CONFLICT],
    ),
    get(
        "/jobs/{job}/plan",
        Operation::Plan,
        "showPlan",
        "What a job runs as, as text and in the DOT language",
        &[],
        &[(200, Some("Plan")), NO_JOB],
    ),
    get(
        "/jobs/{job}/checkpoints",
        Operation::Checkpoints,
        "listCheckpoints",
        "Counts of checkpoints, and the completed ones, newest first",
        PAGE,
        &[(200, Some("Checkpoints")), NO_JOB],
    ),
    change(
        Method::Post,
        "/jobs/{job}/checkpoints",
        (Operation::TakeCheckpoint, "takeCheckpoint", "Takes a checkpoint"),
        &[],
        None,
        &[(202, Some("Triggered")), NO_JOB, CONFLICT, BUSY],
    ),
    get(
        "/jobs/{job}/checkpoints/status/{trigger}",
        Operation::Trigger,
        "showCheckpointTrigger",
        "How far a checkpoint is that was asked for",
        &[],
        &[(200, Some("TriggerStatus")), NO_JOB],
    ),
    change(
        Method::Post,
        "/jobs/{job}/savepoints",
        (Operation::TakeSavepoint, "takeSavepoint", "Takes a savepoint; the job goes on"),
        &[],
        Some(("TakeSavepoint", true)),
        &[(202, Some("Triggered")), NO_JOB, CONFLICT, BUSY],
    ),
    get(
        "/jobs/{job}/savepoints/{trigger}",
        Operation::Trigger,
        "showTrigger",
        "How far a savepoint or a stop is that was asked for",
        &[],
        &[(200, Some("TriggerStatus")), NO_JOB],
    ),
    change(
        Method::Post,
        "/jobs/{job}/stop",
        (
            Operation::Stop,
            "stopJob",
            "Stops a job with a savepoint, or without a directory with a last checkpoint",
        ),
        &[],
        Some(("Stop", false)),
        &[(202, Some("Triggered")), NO_JOB, CONFLICT, BUSY],
    ),
    get(
        "/taskmanagers",
        Operation::TaskManagers,
        "listTaskManagers",
        "All task managers, their nodes, slots and subtasks",
        PAGE,
        &[(200, Some("TaskManagers")), OVER, LATE],
    ),
    get(
        "/taskmanagers/{id}",
        Operation::TaskManager,
        "showTaskManager",
        "One task manager",
        &[],
        &[(200, Some("TaskManager")), NO_JOB, OVER, LATE],
    ),
    get(
        "/events",
        Operation::Events,
        "listEvents",
        "What happened to subtasks, task managers and blocklisted items; the last 10000",
        AFTER,
        &[(200, Some("Events")), OVER, LATE],
    ),
    get(
        "/config",
        Operation::Config,
        "listConfig",
        "The options, their values and where those come from; secrets are masked",
        &[],
        &[(200, Some("Config"))],
    ),
    get(
        "/health",
        Operation::Health,
        "health",
        "Whether the server answers",
        &[],
        &[(200, Some("Health"))],
    ),
    get(
        "/metrics",
        Operation::Metrics,
        "metrics",
        "The figures of the job, in the OpenMetrics text format",
        &[],
        &[(200, Some("text"))],
    ),
    get(
        "/openapi.json",
        Operation::OpenApi,
        "openapi",
        "This description",
        &[],
        &[(200, Some("Any"))],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_of_one_path_stand_together_and_differ() {
        let mut paths: Vec<_> = ROUTES.iter().map(|route| route.path).collect();
        paths.dedup();
        assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len());
        let rows: BTreeSet<_> =
            ROUTES.iter().map(|route| (route.path, route.method.name())).collect();
        assert_eq!(rows.len(), ROUTES.len());
        let ids: BTreeSet<_> = ROUTES.iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
