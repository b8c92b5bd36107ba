// Colours of the page, read from its style sheet, so that they follow a light or a dark scheme.

const NAMES = [
  "ink", "muted", "line", "paper", "ground", "accent", "compute", "backward", "weights", "codec", "wait", "held", "up", "down", "peer", "control",
  "idle", "busy1", "busy2", "busy3", "busy4", "broken", "land", "change", "evaluation", "loss", "stale",
];

export const look = {};

export function readLook() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) look[name] = style.getPropertyValue(`--${name}`).trim();
}

export const LANE_NAMES = ["compute", "codec", "wait", "held"];

/** Passes of a step that have a colour of their own; all other work has that of its lane. */
export const PASSES = ["backward", "weights"];

/** The colour of work, by its lane and by what is told of it. */
export function colourOfWork(lane, text) {
  const pass = lane === 0 && PASSES.find((name) => text.startsWith(name));
  return look[pass || LANE_NAMES[lane]];
}

const UP = new Set(["push", "merge", "block"]);
const DOWN = new Set(["value", "spread"]);

/** The colour of a message: contributions up, values down, between peers, or without tensors. */
export function colourOfMessage(kind, bytes = 1) {
  if (!bytes) return look.control;
  if (UP.has(kind)) return look.up;
  return DOWN.has(kind) ? look.down : look.peer;
}

const USES = ["idle", "busy1", "busy2", "busy3", "busy4"];

/** The class of a link's use, 0 (idle) to 4 (full). */
export function classOfUse(use) {
  if (use < 0.02) return 0;
  if (use < 0.35) return 1;
  if (use < 0.65) return 2;
  return use < 0.9 ? 3 : 4;
}

export function colourOfUse(number) {
  return look[USES[number]];
}

/** Fit a canvas to its place on the screen; return its context, in CSS pixels, or null while it is not shown. */
export function fitted(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
