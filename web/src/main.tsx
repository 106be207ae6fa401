import { render } from "preact";
import { takeToken } from "./api";
import { App } from "./app";
import "./style.css";

const root = document.getElementById("page");
if (root) render(<App hasToken={Boolean(takeToken())} />, root);
