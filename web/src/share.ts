/** Write a part of the page as one HTML file that loads nothing and runs no script. */

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:";

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

function readStyles(page: Document): string {
  return [...page.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((rule) => rule.cssText)).join("\n");
}

/** Return the element that matches, with every card open and without its buttons. */
export function makePage(page: Document, selector: string): string {
  const copy = page.querySelector(selector)?.cloneNode(true) as HTMLElement | undefined;
  if (!copy) return "";
  copy.querySelectorAll("button, textarea, input, select, .approval .buttons, script").forEach((element) => element.remove());
  copy.querySelectorAll("details").forEach((element) => element.setAttribute("open", ""));
  copy.removeAttribute("tabindex");
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
