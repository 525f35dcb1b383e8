/** Asks for the key when the service wants one. */

import { setText } from "./elements.js";
import { key } from "./service.js";

export class KeyForm {
  #form;
  #forget;

  /** `changed()` is called when there is another key, or none any more. */
  constructor(form, forget, changed) {
    this.#form = form;
    this.#forget = forget;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      key.set(form.key.value);
      form.key.value = "";
      changed();
    });
    forget.addEventListener("click", () => {
      key.forget();
      changed();
    });
  }

  /** A key that is there was refused just now; it is dropped. */
  ask() {
    setText(this.#form.querySelector("[role=alert]"), key.get() === null ? "" : "The service refused this key.");
    key.forget();
    this.#show(true);
    this.#form.key.focus();
  }

  /** The service answers as things are. */
  satisfied() {
    this.#show(false);
  }

  #show(asking) {
    this.#form.hidden = !asking;
    this.#forget.hidden = asking || key.get() === null;
  }
}
