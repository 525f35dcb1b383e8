/** Runs one task again and again while the page is visible, never two at the same time. */

const LONGEST_PAUSE = 60_000; // milliseconds: whatever a proxy asks for

export class Heartbeat {
  #task;
  #pause;
  #timer;
  #running = new AbortController();
  #resting = false;

  /**
   * `task(signal)` is called immediately by `beat`, then `pause` milliseconds after each end, or after as many as it
   * returns, where these are more.
   */
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
    let wanted = 0;
    try {
      wanted = await this.#task(signal);
    } finally {
      const pause = Math.max(this.#pause, Math.min(wanted, LONGEST_PAUSE));
      if (!signal.aborted) this.#timer = setTimeout(() => this.beat(), pause);
    }
  }

  /** Until the next `beat`, whether the page is seen or not. */
  rest() {
    this.#resting = true;
    clearTimeout(this.#timer);
    this.#running.abort();
  }
}
