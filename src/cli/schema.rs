//! `ktsu schema`: JSON Schemas of the files of a kit, for editors.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use super::output::print_json;
use super::{Common, Failure};
use ktsu_config::shape::MapShape;
use ktsu_config::shape::json::document;
use ktsu_environment::shape::ENVIRONMENT;
use ktsu_eval::ANSWERS;
use ktsu_eval::EVAL;
use ktsu_gateway as gateway;
use ktsu_kit::lock::shape::LOCK;
use ktsu_kit::shape::{agent, kit, server, workflow, world};

/// What `schema` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The kind of file
    kind: SchemaKind,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SchemaKind {
    /// agents/NAME.agent.yaml
    Agent,
    /// The answers of ktsu run --answers
    Answers,
    /// environments/NAME.env.yaml
    Environment,
    /// evals/NAME.eval.yaml
    Eval,
    /// gateway.yaml
    Gateway,
    /// kit.yaml
    Kit,
    /// ktsu.lock.yaml
    Lock,
    /// The rules of a scripted provider
    Rules,
    /// servers/NAME.server.yaml
    Server,
    /// servers.yaml
    Servers,
    /// workflows/NAME.workflow.yaml
    Workflow,
    /// worlds/NAME.world.yaml
    World,
}

impl SchemaKind {
    fn shape(self) -> (&'static str, &'static MapShape) {
        match self {
            Self::Agent => ("An agent of ktsu", &agent::AGENT),
            Self::Answers => ("Answers in place of people, of ktsu", &ANSWERS),
            Self::Environment => ("An environment of ktsu", &ENVIRONMENT),
            Self::Eval => ("Invariants of a finished run, of ktsu", &EVAL),
            Self::Gateway => ("gateway.yaml of ktsu", &gateway::GATEWAY),
            Self::Kit => ("kit.yaml of ktsu", &kit::KIT),
            Self::Lock => ("The lock of a kit of ktsu", &LOCK),
            Self::Rules => ("Rules of a scripted provider of ktsu", &gateway::RULES),
            Self::Server => ("A tool server of ktsu", &server::SERVER),
            Self::Servers => ("servers.yaml of ktsu", &server::SERVERS),
            Self::Workflow => ("A workflow of ktsu", &workflow::WORKFLOW),
            Self::World => ("A world of ktsu", &world::WORLD),
        }
    }

    fn schema(self) -> Value {
        let (title, shape) = self.shape();
        document(title, shape)
    }
}

/// Prints the schema of one kind of file.
pub(super) fn run(_: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    print_json(&arguments.kind.schema())
}
