"""The rows of the five systems and the 25 promises, each with the feature that it names."""

SYSTEMS = {
    "MA": "Machai",
    "SP": "Spring AI",
    "AJ": "AJ-MCP",
    "CO": "Copilot SDK for Java",
    "L4": "LLM4S",
    "P": "Promises that one of the five systems makes and breaks",
}

_FEATURES = {
    "MA": """
        Functions, provider-run tools and remote MCP servers in one place
        Related tools in one class
        Tools found by a declaration of their package
        Bundles for certain applications only
        A handler gets arguments, project directory and configuration
        Session ID of a call
        Text results as they are, other values as JSON
        A failure becomes text for the model and a line of the log
        Name and description of a tool
        Name, description and default of a parameter
        A null default differs from no default
        Required unless the parameter has a default
        Argument, then default, then null
        Empty text, null and lists keep their form
        The project directory never comes from the model
        JSON types of Python types
        Conversion of text to the type of a parameter
        Values injected by type
        Prompts with name, description and role
        Roles of a prompt
        A prompt reaches a model
        Description of a parameter by data
        Placeholders in defaults
        Placeholders in text results
        From a configuration to the answer of a model
        Tools registered by code
        Keywords of a schema that are sent
        From a call of the model to the next request
        Arguments that are not JSON
        A tool that does not exist
        Two tools of one name
        Web search that the provider runs
        Web search from a configuration
        MCP server that the provider calls
        MCP servers from a configuration
        Log of calls
        Guidance for writing tools
    """,
    "SP": """
        The model asks, the application runs
        A tool of one's own class
        Definition with a hand-written schema
        Option that returns a result directly
        Decorator with name, description, direct return and converter
        Names as written, unique
        Characters of a name
        Description from the name
        Kinds of methods and their types
        Tools of an object
        Descriptions on parameters and fields
        Tools of an object as a list
        Method as a tool, by code
        Definition derived from a method
        Functions of every shape as tools
        Tools found by name while running
        Tools of one request
        Tools of a request replace or extend the defaults
        Shared tools and dangerous ones
        Types that a method may have
        Types that a function may have
        Start without introspection
        Schema generation
        JSON types of Python types
        Context as a parameter
        Names of parameters
        Sources of descriptions at every depth
        Required fields at every depth
        Lenient conversion of arguments
        Empty arguments
        Result converter
        Default conversion of results
        Direct return if all calls agree
        Direct return and errors
        Context that the model never sees
        Merge of contexts
        Tool that needs a context
        Definitions and calls without a chat
        Names that are resolved to definitions
        Order of calls, unknown tools
        Loop of the framework
        Condition for running calls
        Advisors around and inside the loop
        Position of advisors
        History off
        Memory with history off
        Hooks of the loop
        Streaming
        Loop of the application
        Loop of the application with a memory
        Function for errors
        Default treatment of errors
        Arguments that are not JSON
        Chain of resolvers
        Extra arguments with a typed consumer
        Extra arguments: options, clashes, removal
        Uses of extra arguments
        Spans of calls
        Debug log of every operation
    """,
    "AJ": """
        Tools found by a scan of a package
        Name and description of a tool
        Name, description and requirement of an argument
        JSON types of Python types
        Schema of a tool without parameters
        Slow tool
        Image as a result
        Several parts as a result
        Text, values and null as results
        Kinds of content
        Image from a file of a package
        Validation of a call
        Conversion, optional and object arguments
        Exception of a tool
        Two scanned tools of one name
        Several roles of one method
    """,
    "CO": """
        Tool from a schema and a handler
        Record as the schema
        Decorator with description and name
        Names in snake case
        Description, name, requirement and default of a parameter
        Optional parameters
        The method is the handler
        Tools of an object or of a class
        Text for results
        Text for null
        Async handlers and executors
        Replacing a built-in tool
        Tool without a permission prompt
        Metadata from build time
        Build errors that the decision record lists
        Build errors for wrong metadata
        Fallback without metadata
        Experimental API needs permission
        Inherited and composed tools
        Tools from computed schemas
        JSON types of Python types
        One record as all arguments
        Schema of a tool without parameters
        Explicit null and defaults
        The call as a parameter
        Registry of tools
    """,
    "L4": """
        Local tools and servers in one registry
        Local tools first
        A failing tool is not called elsewhere
        The first of two servers wins
        One definition for each name
        Lists expire and are fetched again
        Clear the lists
        Refresh the lists
        Connect at the start or later
        A lookup never raises
        A failed server is connected again
        Health of servers
        Close, and connect again
        A call never raises
        Request as a value
        Types of errors
        Errors of parameters
        JSON of errors
        Time-out and retry of a call
        Retry policy
        Time-out of each attempt
        Async and sync calls
        Batches
        Definitions for OpenAI, strict
        Definitions by provider
        Unknown provider
        One tool, all tools
        Azure
        Null as arguments
        Tool from a schema, with its checks
        Servers by command and address
        Nothing is lost from the tools of a server
    """,
    "P": """
        A failing local tool is not sent to a server, and a remote tool runs once
        An unreachable server is left out, not remembered as empty, and connected again
        Health is asked of the server
        A closed server is connected again
        A shadowed name is exported once
        Nested schemas, missing descriptions and errors of servers survive
        A memory keeps the user's message if the history is off
        A failing direct tool goes back to the model
        An augmented direct tool stays direct
        The model reads that its JSON is wrong
        Whether tools replace or extend the defaults is explicit
        A model cannot set the project directory
        Empty text stays empty, null stays null
        Placeholders in results stay as they are
        A gap in the numbers of servers hides none
        Prompts can be used
        Two tools of one name are detected
        Every JSON type is valid
        Optional and object arguments work
        Null and exceptions are error results over MCP
        Duplicates, types and forbidden combinations are build errors
        Inherited tools are found
        Explicit null means the same everywhere
        A strict definition keeps optional parameters optional
        A function without a result gives the same text everywhere
    """,
}

ROWS = {
    (f"{system}{number}" if system == "P" else f"{system}-{number}"): feature
    for system, features in _FEATURES.items()
    for number, feature in enumerate((line.strip() for line in features.strip().splitlines()), 1)
}
"""Feature of each row, by its ID."""
