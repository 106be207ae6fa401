/** Show a text in place of a part of the page that fails, so that the rest of the page stays. */
import { Component, type ComponentChildren } from "preact";

export class Boundary extends Component<{ children: ComponentChildren; fallback: ComponentChildren }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static override getDerivedStateFromError() {
    return { hasFailed: true };
  }

  override render() {
    return this.state.hasFailed ? this.props.fallback : this.props.children;
  }
}

export function Failed() {
  return (
    <p class="error empty" role="alert">
      This part of the page cannot show its data.{" "}
      <button type="button" onClick={() => location.reload()}>
        Load the page again
      </button>
    </p>
  );
}
