//! Stories told through the real binary: what a person at the command line and an agent on the other end of a pipe meet.

mod approvals;
mod checks;
mod commits;
mod detached;
mod directories;
mod display;
mod egress;
mod executions;
mod files;
mod hosts;
mod jail;
mod limits;
mod operator;
mod overlays;
mod record;
mod room;
mod run;
mod serve;
mod session;
mod validate;
mod warm;
mod warm_landlock;
mod warm_node;
mod warm_root;
mod words;
mod workspace;
