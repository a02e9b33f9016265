// The log of a pod, as it is written. log and tools exist on the page of a pod only.
const log = document.getElementById("log"), tools = document.getElementById("tools");

// How much of the log is kept, and how much of it may wait to be shown: containers may write faster than a browser shows.
const longest = 5e5, backlog = 1e5;

// Sequences of terminals: those of colours and others, control characters, and changes of the text direction.
const sequence = /\x1b\[([0-9;]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// paint adds text to nodes: the colours of terminals are classes, all other sequences are left out. pen is the colour
// that the stream has had so far.
function paint(nodes, text, pen) {
	const add = (part) => {
		if (!part) return;
		if (pen.colour === "" && !pen.bold) { plain(nodes, part); return; }
		const span = document.createElement("span");
		span.className = (pen.colour !== "" ? "colour-" + pen.colour : "") + (pen.bold ? " bold" : "");
		span.textContent = part;
		nodes.push(span);
	};
	let at = 0;
	for (const found of text.matchAll(sequence)) {
		add(text.slice(at, found.index));
		at = found.index + found[0].length;
		if (found[1] === undefined) continue;
		const codes = found[1].split(";").map(Number);
		for (let i = 0; i < codes.length; i++) {
			const code = codes[i];
			if (code === 0) { pen.colour = ""; pen.bold = false; }
			else if (code === 1) pen.bold = true;
			else if (code === 22) pen.bold = false;
			else if (code === 39) pen.colour = "";
			else if (code >= 30 && code <= 37 || code >= 90 && code <= 97) pen.colour = code % 10;
			else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : 4; // of more colours than eight
		}
	}
	add(text.slice(at));
}

// plain adds text to nodes, to the text before it if there is one: a browser needs less time for few nodes.
function plain(nodes, text) {
	if (typeof nodes.at(-1) === "string") nodes[nodes.length - 1] += text; else nodes.push(text);
}

// show adds a line to nodes. It begins with its time, container and stream; those that one has asked for are shown, and
// standard error has a mark at its edge.
let pens = new Map();
function show(nodes, line) {
	const [time, name, stream] = line.split(" ", 3), text = line.slice(time.length + name.length + stream.length + 3) + "\n";
	const all = tools.elements.container.value === "*", key = name + " " + stream;
	let into = nodes;
	if (stream === "stderr") into = [];
	if (tools.elements.times.checked && time) plain(into, time + " ");
	if (stream === "-") plain(into, `— ${all ? name + " " : ""}${text.trimEnd()} —\n`);
	else {
		if (all) {
			const from = document.createElement("b");
			from.textContent = name;
			from.className = "colour-" + (1 + (tools.elements.container.options.namedItem("of-" + name)?.index ?? 0) % 6);
			into.push(from, " ");
		}
		if (!pens.has(key)) pens.set(key, {colour: "", bold: false});
		paint(into, text, pens.get(key));
	}
	if (stream !== "stderr") return;
	const span = document.createElement("span");
	span.className = "stderr";
	span.append(...into);
	nodes.push(span);
}

// append adds lines to the log, some times a second. It keeps the end visible if it was, and removes the oldest ones.
let waiting = "", omitted = 0, size = 0, drawing;
function append(text) {
	waiting += text;
	const most = size ? backlog : longest; // what was written before comes at once, and all of it is wanted
	if (waiting.length > most) {
		const cut = waiting.indexOf("\n", waiting.length - most) + 1;
		omitted += waiting.slice(0, cut).split("\n").length - 1;
		waiting = waiting.slice(cut);
	}
	drawing ??= setTimeout(draw, 100);
}
function draw() {
	drawing = undefined;
	const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 16;
	// The oldest lines go in one piece; a browser lays out a new piece only.
	const part = document.createElement("div"), nodes = [];
	if (omitted) plain(nodes, `— ${omitted} lines were written too fast to be shown —\n`);
	for (const line of waiting.split("\n").slice(0, -1)) show(nodes, line);
	part.append(...nodes);
	size += part.textContent.length; // which sequences are no part of
	waiting = "";
	omitted = 0;
	log.append(part);
	while (size > longest && log.childNodes.length > 1) {
		size -= log.firstChild.textContent.length;
		log.firstChild.remove();
	}
	if (atEnd) log.scrollTop = log.scrollHeight;
	mark();
}
function clear() {
	clearTimeout(drawing);
	drawing = undefined;
	log.textContent = waiting = "";
	pens = new Map();
	size = omitted = 0;
}

// mark marks what is searched for, the newest 500 times. Enter shows the one before, from the end on.
let marks = [], seek = 0;
function mark() {
	const words = tools.elements.find.value;
	const pattern = new RegExp(words.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
	marks = [];
	const texts = document.createTreeWalker(log, NodeFilter.SHOW_TEXT);
	for (let node = words && texts.lastChild() && texts.currentNode; node && marks.length < 500; node = texts.previousNode()) {
		for (const found of [...node.data.matchAll(pattern)].slice(marks.length - 500).reverse()) {
			const range = new Range();
			range.setStart(node, found.index);
			range.setEnd(node, found.index + found[0].length);
			marks.push(range);
		}
	}
	CSS.highlights?.set("mark", new Highlight(...marks));
	say(document.getElementById("marks"), words && (marks.length < 500 ? marks.length : "500 or more") + " times");
}

// chosen is which log is shown, as parameters.
const chosen = () => new URLSearchParams(["container", "previous", "stream"]
	.map((name) => [name, tools.elements[name].value]).filter(([, value]) => value));

// follow shows the chosen log as it is written, over the ends of runs, until another one is chosen. When podrun has not
// responded, it loads all of it again.
let reading;
async function follow() {
	reading?.abort();
	const mine = reading = new AbortController();
	const from = new URL(location.pathname + "/log", location.origin); // without the password that the page's URL may contain
	const parameters = chosen(), live = !parameters.has("previous"), many = tools.elements.container.options.length - 1;
	from.search = parameters;
	from.searchParams.set("tailLines", parameters.get("container") === "*" ? Math.max(100, Math.floor(1000 / many)) : 1000);
	if (live) from.searchParams.set("follow", "true");
	for (let shown = false; !mine.signal.aborted; await new Promise((then) => setTimeout(then, 5000))) {
		try {
			const answer = await fetch(from, {signal: mine.signal});
			let rest = "", fresh = true;
			const add = (text) => {
				if (fresh) clear();
				fresh = false;
				append(text);
			};
			if (!answer.ok) {
				if (!shown && answer.status < 500) { clear(); log.textContent = await answer.text(); }
				throw new Error(answer.statusText);
			}
			const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
			for (let part; !(part = await reader.read()).done;) {
				const end = part.value.lastIndexOf("\n") + 1;
				if (end) add(rest + part.value.slice(0, end));
				rest = (end ? "" : rest) + part.value.slice(end);
				shown = true;
			}
			if (!live) return;
		} catch { /* again */ }
	}
}

// choose shows another log, and the address has what is chosen.
function choose() {
	history.replaceState(null, "", `${location.pathname}?${chosen()}${location.hash}`);
	document.body.dataset.live = document.body.dataset.live.replace(/\?.*/, "?" + chosen());
	listen();
	clear();
	follow();
}

if (log) {
	log.scrollTop = log.scrollHeight;
	for (const label of tools.querySelectorAll("label")) label.hidden = false;
	for (const name of ["container", "previous", "stream", "times"]) tools.elements[name].addEventListener("change", choose);
	tools.elements.find.addEventListener("input", () => { seek = 0; mark(); });
	tools.addEventListener("submit", (event) => {
		event.preventDefault();
		const range = marks[seek++ % marks.length];
		if (range) log.scrollTop += range.getBoundingClientRect().top - log.getBoundingClientRect().top - log.clientHeight / 2;
	});
	addEventListener("keydown", (event) => {
		if (event.key === "Escape" && !["INPUT", "SELECT"].includes(event.target.tagName)) document.getElementById("up").click();
	});
	follow();
}
