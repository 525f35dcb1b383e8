/** The page: asks the service every two seconds and hands the answers to the parts that show them. */

import { Arms } from "./arms.js";
import { Chart } from "./chart.js";
import { Clusters } from "./clusters.js";
import { setText } from "./elements.js";
import { Heartbeat } from "./heartbeat.js";
import { history } from "./history.js";
import { Journal } from "./journal.js";
import { KeyForm } from "./keyform.js";
import { count, decimal, rate } from "./numbers.js";
import { Picker } from "./picker.js";
import { KeyNeeded, Unreachable, get, whenLimited } from "./service.js";
import { Status } from "./status.js";
import { Tiles } from "./tiles.js";

const PAUSE = 2000; // milliseconds

const $ = (id) => document.getElementById(id);
const now = () => Date.now() / 1000;

const heartbeat = new Heartbeat(refresh, PAUSE);
const status = new Status($("status"), $("updated"), $("content"));
const keyForm = new KeyForm($("key-form"), $("forget"), () => heartbeat.beat());
const tiles = new Tiles($("tiles"));
const clusters = new Clusters($("clusters"));
const journal = new Journal($("log-facts"), $("policy-facts"), $("warnings"));
const arms = new Arms($("arms"), () => heartbeat.beat());
const picker = new Picker($("picker"), () => {
  arms.reset();
  status.waiting();
  heartbeat.beat();
});
const rates = new Chart(
  $("rates"),
  [
    { name: "decisions", label: "Decisions", read: (point) => point.decisions, show: rate },
    { name: "rewards", label: "Rewards", read: (point) => point.rewards, show: rate },
  ],
  0,
);
const means = new Chart(
  $("means"),
  [{ name: "mean", label: "Mean", read: (point) => point.mean, show: decimal }],
  null,
);

let minutes = [];

/** All answers for the chosen bandit; its entry is null where the service has none. */
async function read(signal) {
  const { bandits } = await get("bandits", {}, signal);
  const bandit = picker.choose(bandits);
  if (bandit === null) return { bandit };
  const of = { bandit: bandit.name };
  const [activity, policy, page] = await Promise.all([
    get("activity", of, signal),
    get("policy", of, signal),
    get("arms", { ...of, ...arms.query }, signal),
  ]);
  return { bandit, activity, policy, page };
}

/** Returns how many milliseconds the service wants to be left alone. */
async function refresh(signal) {
  let answers;
  try {
    answers = await read(signal);
  } catch (error) {
    return signal.aborted ? 0 : fail(error);
  }
  if (signal.aborted) return 0;
  keyForm.satisfied();
  status.live(now());
  show(answers);
  return 0;
}

function fail(error) {
  if (error instanceof KeyNeeded) {
    heartbeat.rest();
    $("content").hidden = true;
    $("picker").hidden = true;
    status.locked();
    keyForm.ask();
    return 0;
  }
  if (!(error instanceof Unreachable)) throw error;
  status.lost(now(), error.message);
  return error.pause;
}

function show({ bandit, activity, policy, page }) {
  $("empty").hidden = bandit !== null;
  $("content").hidden = bandit === null;
  if (bandit === null) return;
  document.title = `${bandit.name} · sketchbandits`;
  setText($("name"), bandit.name);
  setText($("summary"), `${bandit.policy} on ${count(bandit.arms)} arms in ${count(bandit.dimension)} dimensions`);
  tiles.show(bandit, activity, now());
  minutes = activity.minutes;
  draw();
  arms.show(page);
  clusters.show(policy.clusters);
  journal.show(bandit, policy, activity.log);
}

function draw() {
  const range = Number(document.querySelector("[name=range]:checked").value);
  const shown = history(minutes, range, now());
  rates.show(shown);
  means.show(shown);
}

whenLimited((milliseconds) => status.limited(now(), milliseconds / 1000));
$("range").addEventListener("change", draw);
heartbeat.beat();
