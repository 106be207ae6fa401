"""The words of every rule: what it finds, why that matters, what to do.

Lives here: text. `rules` makes the table from it.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class RuleText(NamedTuple):
    """One rule in words."""

    head: str
    """Code, severity and name; a fourth word, `loads`, where it needs the tools themselves."""
    what: str
    why: str
    fix: str


RULE_TEXTS: Final[tuple[RuleText, ...]] = (
    RuleText(
        "TM100 error unreadable-file",
        "A file that cannot be read as Python.",
        "Nothing in it can be checked, and nothing in it can be imported.",
        "Correct the file at that place, save it as UTF-8, or leave it out with `exclude`.",
    ),
    RuleText(
        "TM101 warning missing-parameter-description",
        "A parameter that the model fills and that nothing describes.",
        "A model fills a parameter by its description; without one it guesses from the name.",
        'Write `Annotated[str, "what it means"]`, or name it in the docstring\'s `Args:`.',
    ),
    RuleText(
        "TM102 warning missing-description",
        "A tool without a docstring and without `description=`.",
        "The model chooses a tool by its description; the name in words is all it gets.",
        "Write a docstring that says what the tool does and when to use it.",
    ),
    RuleText(
        "TM103 error untyped-parameter",
        "A parameter without a type.",
        "There is no schema to show to the model; the tool cannot be defined.",
        "Annotate it: `count: int`. `Any` takes anything.",
    ),
    RuleText(
        "TM104 error unsupported-type",
        "A parameter of a type that has no JSON Schema.",
        "A model sends JSON; a function, a lock or a connection cannot come from it. The tool cannot be defined.",
        "Use a JSON-like type, a dataclass or a model, or have the application fill it with `Inject`.",
    ),
    RuleText(
        "TM105 error star-args",
        "A tool with `*args`.",
        "A model sends arguments by name, and these have none. The tool cannot be defined.",
        "Take a list: `items: list[str]`.",
    ),
    RuleText(
        "TM106 error duplicate-in-class",
        "Two tools of one name in a class and its ancestors.",
        "A toolbox refuses the bundle, or the first of the two is silently lost.",
        "Rename one with `name=`, or drop an inherited one with `@tool.exclude`.",
    ),
    RuleText(
        "TM107 error duplicate-in-box",
        "Two tools of one name given to one `Toolbox(...)`.",
        "The toolbox cannot be built: a name must mean one tool.",
        "Rename one with `name=`, or give one source a prefix with `.prefixed(...)`.",
    ),
    RuleText(
        "TM108 error duplicate-in-module",
        "Two tools of one name in a module.",
        "The module cannot be given to a toolbox, or the first of the two is silently lost.",
        "Rename one of them, or move it to another module.",
    ),
    RuleText(
        "TM109 error required-with-default",
        "`Param(required=True)` on a parameter that has a default.",
        "One of the two is a lie; the tool cannot be defined.",
        "Drop the default, or drop `required=True`.",
    ),
    RuleText(
        "TM110 error bad-default",
        "A default that does not fit its type.",
        "The schema would promise the model a value that the tool itself would refuse; the tool cannot be defined.",
        "Change the default or the type; for `None` write `... | None = None`.",
    ),
    RuleText(
        "TM111 warning unknown-placeholder",
        "A template whose `${name}` is no earlier parameter.",
        "It stays in the text as it is written, and the tool gets `${name}` itself.",
        "Name a parameter that stands before it, or `project_dir`; or give a fallback: `${name:-text}`.",
    ),
    RuleText(
        "TM112 error template-without-text",
        "`Param(template=True)` without a text as default.",
        "There is nothing to expand; the tool cannot be defined.",
        'Give a text: `Param(template=True, default="${folder}/a.txt")`.',
    ),
    RuleText(
        "TM113 error unknown-lock",
        "`lock=` names no parameter of the tool.",
        "Every call then takes the same lock: they run one after another, or the wrong ones do.",
        "Name a parameter of the tool, as Python calls it.",
    ),
    RuleText(
        "TM114 error misplaced-decorator",
        "`@tool` or `@prompt` on a class, a property, or something else that cannot be called.",
        "It is refused at import, or the tool is silently never found.",
        "Decorate the methods of a class, and make a property a method.",
    ),
    RuleText(
        "TM115 error computed-docstring",
        "A docstring that is an f-string, `.format(...)` or `%`.",
        "Python does not take it as a docstring, so the model never sees it.",
        "Write a plain text, or pass the computed one as `description=`.",
    ),
    RuleText(
        "TM116 error unknown-option",
        "A keyword that `@tool`, `@prompt` or `Param` does not know.",
        "It is refused at import.",
        "Correct the spelling.",
    ),
    RuleText(
        "TM117 error bad-option-value",
        "An option with a value that makes no sense.",
        "It is refused at import.",
        "Give one of the values that the option takes.",
    ),
    RuleText(
        "TM118 warning stray-parameter-text",
        "A docstring that describes a parameter which the function does not have.",
        "The text was written for a name that changed; the model reads it as part of the description.",
        "Rename the entry, or remove it.",
    ),
    RuleText(
        "TM119 error one-label-twice",
        "Two parameters that the model would call by one name.",
        "An argument must mean one parameter; the tool cannot be defined.",
        "Give each its own `Param(name=...)`.",
    ),
    RuleText(
        "TM120 warning described-and-injected",
        "A parameter that is injected and described with `Param`.",
        "The model never sees an injected parameter, so its name, default and description have no effect.",
        "Drop `Param`, or drop the marker of injection.",
    ),
    RuleText(
        "TM121 error bad-flatten",
        "`flatten=True` on a tool without exactly one parameter that the model fills.",
        "There is not one model whose fields could be the arguments; the tool cannot be defined.",
        "Take one model, dataclass or TypedDict, or drop `flatten=True`.",
    ),
    RuleText(
        "TM122 error builtin-name",
        "A tool that takes the name of a built-in tool without saying so.",
        "A toolbox refuses it.",
        "Rename it, or mean it with `overrides_builtin=True`.",
    ),
    RuleText(
        "TM123 error class-without-instance",
        "A class with instance methods as tools, given to a toolbox as a class.",
        "There is no object to call the methods on; the toolbox cannot be built.",
        "Give an instance, `Shop()`, or make the methods static or class methods.",
    ),
    RuleText(
        "TM124 error typing-only-import",
        "A parameter's type that is imported only under `if TYPE_CHECKING`.",
        "The type is needed at run time to make the schema; the tool cannot be defined.",
        "Import it at run time.",
    ),
    RuleText(
        "TM125 error experimental-api",
        "Use of `toolmason.experimental` without `allow_experimental()`.",
        "It raises `ExperimentalError`, and may change without notice.",
        "Call `allow_experimental()` once, or set `experimental = true` in `[tool.toolmason]`.",
    ),
    RuleText(
        "TM198 error cannot-load loads",
        "A target that cannot be loaded, or tools that cannot be built.",
        "What the model would see cannot be told.",
        "Read the message; `--static` checks the source alone.",
    ),
    RuleText(
        "TM199 warning unused-ignore",
        "An ignore comment that hides nothing, or names no rule. Told under `--strict`.",
        "It would hide the next mistake at that place.",
        "Remove it, or correct its codes.",
    ),
    RuleText(
        "TM201 warning unportable-name",
        "A tool name that some provider refuses: not `[A-Za-z0-9_-]{1,64}`, or not starting with a letter or `_`.",
        "An adapter has to send another name, and logs and prompts then disagree.",
        "Choose a name of letters, digits, `_` and `-`, up to 64 long.",
    ),
    RuleText(
        "TM202 warning unportable-parameter",
        "A parameter name that some provider refuses: not `[A-Za-z0-9_.-]{1,64}`.",
        "An adapter has to send another name, which says less to the model.",
        'Give it a plain name for the model: `Param(name="size")`.',
    ),
    RuleText(
        "TM203 warning long-description",
        "A description longer than `max_description` (1,024 characters).",
        "Some providers cut or refuse it, and every request pays for it.",
        "Say what the tool does in a few sentences; put the rest into parameters or results.",
    ),
    RuleText(
        "TM204 error rejected-by-provider loads",
        "A definition that a provider refuses.",
        "One refused definition fails the whole request.",
        "Change the schema as the message says.",
    ),
    RuleText(
        "TM205 note lossy-for-provider loads",
        "A part of a schema that a provider does not enforce.",
        "The model may break that part; Toolmason still validates the arguments.",
        "Nothing, or say it in the description.",
    ),
    RuleText(
        "TM206 note strict-not-possible loads",
        "A tool that cannot be sent in a provider's strict mode. An error for providers in `require_strict`.",
        "Without strict mode the model may send arguments that do not fit.",
        "Use closed types: no bare `dict`, no `Any`, no maps.",
    ),
    RuleText(
        "TM207 warning names-differ-in-case",
        "Two tools whose names differ in upper and lower case only.",
        "Models mix them up, and a look-up that ignores case finds neither.",
        "Rename one of them.",
    ),
    RuleText(
        "TM301 error read-only-and-destructive",
        "`read_only=True` with `destructive=True`.",
        "A tool that changes nothing destroys nothing; it is refused at import.",
        "Drop the one that is not true.",
    ),
    RuleText(
        "TM302 error override-and-skip",
        "`overrides_builtin=True` with `skip_permission=True`.",
        "A tool that takes the place of a trusted one must not also go round the approval rule; it is refused.",
        "Drop one of the two.",
    ),
    RuleText(
        "TM303 warning destructive-unannounced",
        "A destructive tool with neither `approval=` nor `preview=`.",
        "Whoever is asked sees raw arguments, and your own code is not asked at all.",
        "Add `preview=` that says what the call would do, or `approval=True`.",
    ),
    RuleText(
        "TM304 warning destructive-without-gate",
        "`destructive=True` with `skip_permission=True`.",
        "What cannot be had back happens without anybody being asked.",
        "Drop `skip_permission=True`, or use `approval=` with a condition.",
    ),
    RuleText(
        "TM305 warning secret-parameter",
        "A parameter that looks like a secret and that the model fills.",
        "A secret in a prompt ends up in logs and at the provider; an invented one ends up in your system.",
        'Have the application fill it: `Annotated[str, Inject("api_key")]`.',
    ),
    RuleText(
        "TM306 warning identity-parameter",
        "A parameter that says who is asking and that the model fills.",
        "A model, or a text that it read, could choose another tenant or user.",
        'Have the application fill it: `Annotated[str, Inject("tenant")]`.',
    ),
    RuleText(
        "TM307 warning model-text-is-code",
        "A parameter that the model fills goes into `eval`, `exec` or a shell.",
        "Whoever can write what the model reads can run code on your machine.",
        "Take a closed set of values, pass a list of arguments without a shell, or ask with `approval=True`.",
    ),
    RuleText(
        "TM308 warning destructive-retry",
        "`retry=` on a destructive tool that is not `idempotent`.",
        "A call that failed late is done twice.",
        "Say `idempotent=True` if that is true, or drop `retry=`.",
    ),
    RuleText(
        "TM309 warning unmarked-destructive",
        "A tool named like one that destroys, with no word about its effects.",
        "Effects decide approval, retries and batches; without them the tool runs unasked.",
        "Say `destructive=True`, or `destructive=False` if it can be undone.",
    ),
    RuleText(
        "TM401 error over-budget loads",
        "Tools that take more tokens together than `budget`.",
        "Every request pays for every definition, and a full prompt makes models choose worse.",
        "Shorten descriptions, drop tools, or raise the budget.",
    ),
    RuleText(
        "TM402 error tool-over-budget loads",
        "A tool that takes more tokens than `tool_budget`.",
        "Every request pays for it.",
        "Shorten its descriptions, or split it.",
    ),
    RuleText(
        "TM403 warning empty-words",
        "A parameter description that only repeats the name.",
        "It costs tokens and tells the model nothing.",
        "Say what the value means, its unit or its form; or leave it out.",
    ),
)
