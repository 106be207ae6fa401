"""Text of every rule: what it finds, why it matters and how to fix it."""

from __future__ import annotations

from typing import Final, NamedTuple


class RuleText(NamedTuple):
    """Text of one rule."""

    head: str
    """Code, severity and name, followed by `loads` if the rule needs loaded tools."""
    what: str
    why: str
    fix: str


RULE_TEXTS: Final[tuple[RuleText, ...]] = (
    RuleText(
        "TM100 error unreadable-file",
        "A file that cannot be parsed as Python.",
        "Nothing in it can be checked or imported.",
        "Correct the syntax, save the file as UTF-8, or skip it with `exclude`.",
    ),
    RuleText(
        "TM101 warning missing-parameter-description",
        "A parameter that the model fills in, without a description.",
        "Models choose arguments by the description; without one they guess from the name.",
        'Write `Annotated[str, "what it means"]`, or describe it in the docstring\'s `Args:`.',
    ),
    RuleText(
        "TM102 warning missing-description",
        "A tool with neither a docstring nor `description=`.",
        "Models choose tools by the description; without one they see only the name.",
        "Write a docstring that says what the tool does and when to use it.",
    ),
    RuleText(
        "TM103 error untyped-parameter",
        "A parameter without a type annotation.",
        "Without a type the model gets no schema; the tool cannot be defined.",
        "Annotate it: `count: int`. `Any` accepts every value.",
    ),
    RuleText(
        "TM104 error unsupported-type",
        "A parameter whose type has no JSON Schema.",
        "Models send JSON, which cannot hold a function, a lock or a connection. The tool cannot be defined.",
        "Use a JSON-compatible type, a dataclass or a Pydantic model, or inject the value with `Inject`.",
    ),
    RuleText(
        "TM105 error star-args",
        "A tool with `*args`.",
        "Models send arguments by name, and `*args` have none. The tool cannot be defined.",
        "Use a list parameter: `items: list[str]`.",
    ),
    RuleText(
        "TM106 error duplicate-in-class",
        "Two tools with the same name in a class and its ancestors.",
        "A toolbox rejects the class, or the second tool silently replaces the first.",
        "Rename one with `name=`, or remove an inherited one with `@tool.exclude`.",
    ),
    RuleText(
        "TM107 error duplicate-in-box",
        "Two tools with the same name in one `Toolbox(...)`.",
        "The toolbox cannot be built: tool names must be unique.",
        "Rename one with `name=`, or prefix one source with `.prefixed(...)`.",
    ),
    RuleText(
        "TM108 error duplicate-in-module",
        "Two tools with the same name in a module.",
        "A toolbox rejects the module, or the second tool silently replaces the first.",
        "Rename one of them, or move it to another module.",
    ),
    RuleText(
        "TM109 error required-with-default",
        "`Param(required=True)` on a parameter with a default.",
        "The two contradict each other; the tool cannot be defined.",
        "Remove the default or `required=True`.",
    ),
    RuleText(
        "TM110 error bad-default",
        "A default that does not match its type.",
        "The schema would offer a value that the tool itself rejects; the tool cannot be defined.",
        "Change the default or the type; for `None`, write `... | None = None`.",
    ),
    RuleText(
        "TM111 warning unknown-placeholder",
        "A template placeholder `${name}` that names no earlier parameter.",
        "The placeholder is not expanded, so the tool receives the text `${name}`.",
        "Name an earlier parameter or `project_dir`, or add a fallback: `${name:-text}`.",
    ),
    RuleText(
        "TM112 error template-without-text",
        "`Param(template=True)` without a string default.",
        "There is nothing to expand; the tool cannot be defined.",
        'Add a string default: `Param(template=True, default="${folder}/a.txt")`.',
    ),
    RuleText(
        "TM113 error unknown-lock",
        "A `lock=` that names no parameter of the tool.",
        "All calls then share one lock and run one after another.",
        "Use the Python name of a parameter.",
    ),
    RuleText(
        "TM114 error misplaced-decorator",
        "`@tool` or `@prompt` on a class, a property or another object that cannot be called.",
        "Toolmason rejects it at import, or silently never finds the tool.",
        "Decorate the methods of a class; turn a property into a method.",
    ),
    RuleText(
        "TM115 error computed-docstring",
        "A docstring built with an f-string, `.format(...)` or `%`.",
        "Python does not treat it as a docstring, so the model never sees it.",
        "Write a plain string, or pass the computed one as `description=`.",
    ),
    RuleText(
        "TM116 error unknown-option",
        "An unknown keyword of `@tool`, `@prompt` or `Param`.",
        "Toolmason rejects it at import.",
        "Correct the spelling.",
    ),
    RuleText(
        "TM117 error bad-option-value",
        "An option with an invalid value.",
        "Toolmason rejects it at import.",
        "Use one of the values that the option accepts.",
    ),
    RuleText(
        "TM118 warning stray-parameter-text",
        "A docstring that describes a parameter the function does not have.",
        "The parameter was probably renamed; the model reads the entry as part of the description.",
        "Rename the entry, or remove it.",
    ),
    RuleText(
        "TM119 error one-label-twice",
        "Two parameters with the same name for the model.",
        "Each argument must belong to one parameter; the tool cannot be defined.",
        "Give each its own `Param(name=...)`.",
    ),
    RuleText(
        "TM120 warning described-and-injected",
        "An injected parameter that is described with `Param`.",
        "The model never sees an injected parameter, so its name, default and description have no effect.",
        "Remove `Param`, or remove the injection marker.",
    ),
    RuleText(
        "TM121 error bad-flatten",
        "`flatten=True` on a tool without exactly one parameter that the model fills in, or with `Param` on it.",
        "Flattening turns the fields of one parameter into the arguments; the tool cannot be defined.",
        "Use one Pydantic model, dataclass or TypedDict, or remove `flatten=True`.",
    ),
    RuleText(
        "TM122 error builtin-name",
        "A tool that has the name of a built-in tool but not `overrides_builtin=True`.",
        "A toolbox rejects it.",
        "Rename it, or set `overrides_builtin=True`.",
    ),
    RuleText(
        "TM123 error class-without-instance",
        "A class with instance methods as tools, passed to a toolbox without an instance.",
        "The methods need an instance; the toolbox cannot be built.",
        "Pass an instance, `Shop()`, or make the methods static or class methods.",
    ),
    RuleText(
        "TM124 error typing-only-import",
        "A parameter type that is imported only under `if TYPE_CHECKING`.",
        "The schema is built from the type at run time; the tool cannot be defined.",
        "Import it at run time.",
    ),
    RuleText(
        "TM125 error experimental-api",
        "Use of an `@experimental` function or class, or of `toolmason.experimental`, without `allow_experimental()`.",
        "It raises `ExperimentalError`, and the API may change without notice.",
        "Call `allow_experimental()` once, or set `experimental = true` in `[tool.toolmason]`.",
    ),
    RuleText(
        "TM126 warning bare-container",
        "A parameter whose type is a container without item types, such as `list` or `dict`.",
        "The schema accepts every item, so the model guesses what to put into it.",
        "Write the item type: `list[str]`; for an object, a TypedDict or a dataclass.",
    ),
    RuleText(
        "TM127 error function-result",
        "A tool that returns a function.",
        "A result is sent to a model as text, and a function has no text. The tool cannot be defined.",
        "Return the data that the function would return, or remove `@tool`.",
    ),
    RuleText(
        "TM128 error optional-without-value",
        "`Param(required=False)` on a parameter whose type does not admit `None`, without a default.",
        "If the model omits the argument, the tool has no value for it, so it cannot be defined.",
        "Add a default, or write `int | None`.",
    ),
    RuleText(
        "TM198 error cannot-load loads",
        "A target that cannot be loaded, or tools that cannot be built.",
        "The definitions that the model would see are unknown.",
        "Fix the error in the message, or check only the source with `--static`.",
    ),
    RuleText(
        "TM199 warning unused-ignore",
        "An ignore comment that hides nothing or names an unknown rule. Reported with `--strict`.",
        "It would hide the next mistake on that line.",
        "Remove it, or correct its codes.",
    ),
    RuleText(
        "TM201 warning unportable-name",
        "A tool name that a provider rejects: not `[A-Za-z0-9_-]{1,64}`, or not starting with a letter or `_`.",
        "The adapter must send another name, so logs and prompts show different names.",
        "Use letters, digits, `_` and `-`, at most 64 characters.",
    ),
    RuleText(
        "TM202 warning unportable-parameter",
        "A parameter name that a provider rejects: not `[A-Za-z0-9_.-]{1,64}`.",
        "The adapter must send another name, which means less to the model.",
        'Give the model a plain name: `Param(name="size")`.',
    ),
    RuleText(
        "TM203 warning long-description",
        "A description longer than `max_description` (1,024 characters).",
        "Some providers truncate or reject it, and every request pays for its tokens.",
        "Describe the tool in a few sentences; move the rest to parameters or results.",
    ),
    RuleText(
        "TM204 error rejected-by-provider loads",
        "A definition that a provider rejects.",
        "One rejected definition fails the whole request.",
        "Change the schema as the message says.",
    ),
    RuleText(
        "TM205 note lossy-for-provider loads",
        "A part of a schema that a provider does not enforce.",
        "The model may violate that part; Toolmason still validates the arguments.",
        "Ignore it, or state the constraint in the description.",
    ),
    RuleText(
        "TM206 note strict-not-possible loads",
        "A tool that cannot be sent in a provider's strict mode. An error for providers in `require_strict`.",
        "Without strict mode the model may send invalid arguments.",
        "Use closed types: no bare `dict`, no `Any`, no mappings.",
    ),
    RuleText(
        "TM207 warning names-differ-in-case",
        "Two tools whose names differ only in case.",
        "Models confuse them, and a case-insensitive lookup finds neither.",
        "Rename one of them.",
    ),
    RuleText(
        "TM301 error read-only-and-destructive",
        "`read_only=True` with `destructive=True`.",
        "A tool that changes nothing destroys nothing; Toolmason rejects it at import.",
        "Remove the option that is not true.",
    ),
    RuleText(
        "TM302 error override-and-skip",
        "`overrides_builtin=True` with `skip_permission=True`.",
        "A tool that replaces a trusted one must not also bypass the approval rule; Toolmason rejects it.",
        "Remove one of the two.",
    ),
    RuleText(
        "TM303 warning destructive-unannounced",
        "A destructive tool with neither `approval=` nor `preview=`.",
        "The approver sees only raw arguments, and calls from your own code need no approval.",
        "Add a `preview=` that describes the effect of the call, or `approval=True`.",
    ),
    RuleText(
        "TM304 warning destructive-without-gate",
        "`destructive=True` with `skip_permission=True`.",
        "Irreversible calls run without approval.",
        "Remove `skip_permission=True`, or use `approval=` with a condition.",
    ),
    RuleText(
        "TM305 warning secret-parameter",
        "A parameter that looks like a secret and that the model fills in.",
        "A secret in a prompt ends up in logs and with the provider; an invented one ends up in your system.",
        'Let the application provide it: `Annotated[str, Inject("api_key")]`.',
    ),
    RuleText(
        "TM306 warning identity-parameter",
        "A parameter that identifies the caller and that the model fills in.",
        "The model, or text that it has read, could choose another tenant or user.",
        'Let the application provide it: `Annotated[str, Inject("tenant")]`.',
    ),
    RuleText(
        "TM307 warning model-text-is-code",
        "A parameter that the model fills in and that is passed to `eval`, `exec` or a shell.",
        "An attacker who controls text that the model reads can run code on your machine.",
        "Accept a closed set of values, pass a list of arguments without a shell, or require `approval=True`.",
    ),
    RuleText(
        "TM308 warning destructive-retry",
        "`retry=` on a destructive tool that is not `idempotent`.",
        "A call that fails late may take effect twice.",
        "Set `idempotent=True` if it is true, or remove `retry=`.",
    ),
    RuleText(
        "TM309 warning unmarked-destructive",
        "A tool with a destructive name that does not set `destructive=`.",
        "Effects control approval, retries and batches; without them the tool runs without approval.",
        "Set `destructive=True`, or `destructive=False` if it can be undone.",
    ),
    RuleText(
        "TM310 warning instructions-in-text",
        "A description that tells the model what to do, such as to call the tool or to hide something from the user.",
        "Clients treat such text as an attack, and it changes what the model does with other tools.",
        "Describe what the tool does and when it is useful; put rules for the model into the system message.",
    ),
    RuleText(
        "TM311 warning blocking-async",
        "A blocking call, such as `time.sleep` or `requests.get`, in an `async` tool.",
        "It stops every other call of the program until it returns, and no time-out can end it.",
        "Make the tool a plain `def`, which runs in a thread, await an async library, or use `asyncio.to_thread`.",
    ),
    RuleText(
        "TM312 warning model-path",
        "A file that is opened by a path from the model, in a tool that does not limit the path to a folder.",
        "The model, or text that it has read, could choose a private file: `../../.ssh/id_rsa`.",
        "Resolve the path below a folder and check it with `is_relative_to`, or require `approval=True`.",
    ),
    RuleText(
        "TM313 warning deletion-in-read-only",
        "A `read_only=True` tool that deletes files, or has SQL that deletes.",
        "A read-only tool runs without approval, is retried, and runs next to others.",
        "Set `destructive=True` instead of `read_only=True`, or remove the deletion.",
    ),
    RuleText(
        "TM401 error over-budget loads",
        "Tools that together take more tokens than `budget`.",
        "Every request pays for every definition, and models choose worse with a full prompt.",
        "Shorten descriptions, remove tools, or raise the budget.",
    ),
    RuleText(
        "TM402 error tool-over-budget loads",
        "A tool that takes more tokens than `tool_budget`.",
        "Every request pays for it.",
        "Shorten its descriptions, or split it.",
    ),
    RuleText(
        "TM403 warning redundant-description",
        "A parameter description that only repeats the name.",
        "It costs tokens and adds nothing for the model.",
        "State the meaning, unit or format of the value, or remove the description.",
    ),
)
