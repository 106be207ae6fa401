import { render } from "preact";
import { takeToken, watchToken } from "./api";
import { App } from "./app";
import "./style.css";

const root = document.getElementById("page");
watchToken();
if (root) render(<App hasToken={Boolean(takeToken())} />, root);
