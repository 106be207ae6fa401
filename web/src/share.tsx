/** Write a chat as one HTML file that loads nothing and runs no script. */
import { render } from "preact";
import type { Run } from "./chatState";
import { Facts, Transcript } from "./transcript";
import type { State } from "./types";
import { Shared } from "./values";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:";

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

function readStyles(page: Document): string {
  return [...page.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n");
}

/** Return the page of a chat, with every call open and without buttons. */
export function makePage(page: Document, run: Run, state: State): string {
  const copy = page.createElement("div");
  copy.className = "chat-log";
  render(
    <Shared.Provider value={true}>
      <Transcript items={run.items} onAnswer={() => undefined} answered={{}} />
      <Facts run={run} state={state} />
    </Shared.Provider>,
    copy,
  );
  copy.querySelectorAll("button, textarea, input, select, .approval .buttons, .toggle").forEach((element) => element.remove());
  copy.querySelectorAll("details").forEach((element) => element.setAttribute("open", ""));
  return `<!doctype html>
<html lang="en" data-theme="${escapeHtml(page.documentElement.dataset.theme ?? "")}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<title>A chat with tools</title>
<style>
${readStyles(page).replaceAll("</", "<\\/")}
body, .chat-log { height: auto; overflow: visible }
</style>
<main class="shared">${copy.outerHTML}</main>
</html>
`;
}
