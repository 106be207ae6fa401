"""Runs that wait, and chats that are called as tools, use remembered decisions."""

from toolmason import Allow, Toolbox, tool
from toolmason.chat.chat import Chat
from toolmason.models.scripted import ScriptedModel


@tool(approval=True, repeats="allow")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def make_box(folder, *tools):
    return Toolbox(*(tools or (pay,)), approval_key="k" * 32, approvals_file=folder / "approvals.db")


async def test_a_run_in_another_process_uses_the_decision(tmp_path):
    box = make_box(tmp_path)
    reply = await Chat(ScriptedModel([[("pay", {"amount": 1})]]), box).send("go", conversation="a")
    decision = box.approvals.decide(reply.pending[0], Allow(remember="conversation"))

    chat = Chat(ScriptedModel([[("pay", {"amount": 2})], "done"]), make_box(tmp_path))
    resumed = await chat.resume(reply.save(), [decision.to_dict()])
    other = await Chat(ScriptedModel([[("pay", {"amount": 3})]]), make_box(tmp_path)).send("go", conversation="b")

    assert [result.text for result in resumed.results] == ["paid 1", "paid 2"]
    assert other.finish == "pending"


async def test_a_decision_about_a_chat_that_is_called_as_a_tool_is_kept_by_the_outer_toolbox(tmp_path):
    def make_chat(*inner):
        clerk = Chat(ScriptedModel([*inner]), [pay]).as_tool("clerk", "Pay.")
        return Chat(ScriptedModel([[("clerk", {"prompt": "pay"})], "done"]), make_box(tmp_path, clerk))

    chat = make_chat([("pay", {"amount": 1})])
    reply = await chat.send("go")
    chat.box.approvals.decide(reply.pending[0], Allow(remember="tool"))

    again = await make_chat([("pay", {"amount": 2})], "paid").send("go")

    assert reply.pending[0].path == "clerk / pay"
    assert (again.finish, again.results[0].text) == ("stop", "paid")
