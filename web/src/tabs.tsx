/** Tabs with the keyboard of the ARIA pattern: arrows move, the panel follows. */
import type { ComponentChildren } from "preact";

export function Tabs<Name extends string>(props: {
  label: string;
  names: readonly Name[];
  chosen: Name;
  onChoose: (name: Name) => void;
  children: ComponentChildren;
}) {
  const id = props.label.toLowerCase().replace(/\W+/g, "-");
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const index = (props.names.indexOf(props.chosen) + step + props.names.length) % props.names.length;
    const name = props.names[index];
    if (!name) return;
    event.preventDefault();
    props.onChoose(name);
    document.getElementById(`${id}-tab-${name}`)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={props.label} onKeyDown={onKeyDown}>
        {props.names.map((name) => (
          <button
            key={name}
            id={`${id}-tab-${name}`}
            type="button"
            role="tab"
            aria-selected={name === props.chosen}
            aria-controls={`${id}-panel`}
            tabIndex={name === props.chosen ? 0 : -1}
            onClick={() => props.onChoose(name)}
          >
            {name}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-tab-${props.chosen}`} class="panel">
        {props.children}
      </div>
    </div>
  );
}
