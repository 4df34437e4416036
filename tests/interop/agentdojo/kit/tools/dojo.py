"""The suites of agentdojo, without the providers that it imports: they are never called here.

Beside this file there are `lib`, a folder with agentdojo and what its environments need, and
`tasks.json`, which says what the attacker wrote where in the environment of each task.
"""
import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "v1.2.2"

# Packages of providers and of terminals, and the modules that need them to begin with.
ABSENT = {
    "anthropic", "click", "cohere", "dotenv", "google", "langchain", "openai", "rich", "tenacity",
    "agentdojo.agent_pipeline.llms", "agentdojo.agent_pipeline.agent_pipeline", "agentdojo.logging",
}


class Absent(types.ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are absent."""

    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


sys.path[:0] = [str(HERE / "lib"), str(HERE / "lib/packages.zip")]
sys.meta_path.insert(0, Finder())
# The package of pipelines, without what it imports by itself: all providers.
pipelines = types.ModuleType("agentdojo.agent_pipeline")
pipelines.__path__ = [str(HERE / "lib/agentdojo/agent_pipeline")]
sys.modules[pipelines.__name__] = pipelines

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suite  # noqa: E402


class Dojo:
    """A user task of a suite with an attack on it: the environment as it is before any call."""

    def __init__(self, suite, task, injections=None, injection=None):
        if injections is None:
            known = json.loads((HERE / "tasks.json").read_text())[suite][task]
            injections, injection = known["injections"], known["injection"]
        self.suite = get_suite(VERSION, suite)
        self.task = self.suite.user_tasks[task]
        self.attack = self.suite.injection_tasks[injection]
        self.runtime = FunctionsRuntime(self.suite.tools)
        environment = self.suite.load_and_inject_default_environment(injections)
        self.environment = self.task.init_environment(environment)
        self.before = self.environment.model_copy(deep=True)

    def call(self, name, arguments):
        """Calls a function; its result as text, and its error, if there is one."""
        result, error = self.runtime.run_function(self.environment, name, arguments)
        return (error or tool_result_to_str(result)), error

    def judge(self, what, output, calls):
        """What agentdojo says of the environment: whether the user (utility) or the attacker
        (security) has what they wanted."""
        task, said = {
            "utility": (self.task, self.task.utility_from_traces),
            "security": (self.attack, self.attack.security_from_traces),
        }[what]
        trace = [FunctionCall(function=name, args=arguments) for name, arguments in calls]
        found = said(output, self.before, self.environment, trace)
        if found is None:
            found = getattr(task, what)(output, self.before, self.environment)
        return bool(found)
