/** Runs one task again and again while the page is visible, never two at the same time. */

export class Heartbeat {
  #task;
  #pause;
  #timer;
  #running = new AbortController();
  #resting = false;

  /** `task(signal)` is called immediately by `beat`, then `pause` milliseconds after each end. */
  constructor(task, pause) {
    this.#task = task;
    this.#pause = pause;
    document.addEventListener("visibilitychange", () => this.#resting || this.beat());
  }

  /** Now, or when the page is seen again. What was under way is to be ignored: its signal is aborted. */
  async beat() {
    this.rest();
    this.#resting = false;
    if (document.hidden) return;
    const { signal } = (this.#running = new AbortController());
    try {
      await this.#task(signal);
    } finally {
      if (!signal.aborted) this.#timer = setTimeout(() => this.beat(), this.#pause);
    }
  }

  /** Until the next `beat`, whether the page is seen or not. */
  rest() {
    this.#resting = true;
    clearTimeout(this.#timer);
    this.#running.abort();
  }
}
