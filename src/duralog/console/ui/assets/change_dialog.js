// A change in two steps: a form, then what it would do with the command that does the same, and one confirmation.
// Everything is shown as text. What is typed stays here until it is sent.
export default {
  template: `
    <dialog ref="dialog" class="keys change" data-testid="change-dialog" :aria-label="title" @close="$emit('closed')"
            @cancel="onCancel" @click.self="onBackdrop">
      <form @submit.prevent="send" novalidate>
        <header><h2>{{ title }}</h2><span class="room"></span>
          <button type="button" class="quiet-button close" aria-label="Close" data-testid="change-close"
                  @click="close">✕</button></header>
        <p v-if="about && step === 'form'" class="about">{{ about }}</p>
        <div v-show="step === 'form'" class="change-fields">
          <div v-for="field in shown" :key="field.name" class="change-field" :class="field.kind">
            <label class="field" :for="'change-' + field.name">
              <span v-if="field.kind !== 'check'">{{ field.label }}</span>
              <select v-if="field.kind === 'select'" :id="'change-' + field.name" v-model="values[field.name]"
                      :data-testid="'change-' + field.name">
                <option v-for="choice in field.choices" :key="choice.value" :value="choice.value">{{ choice.label }}</option>
              </select>
              <textarea v-else-if="field.kind === 'area'" :id="'change-' + field.name" rows="5" spellcheck="false"
                        v-model="values[field.name]" :placeholder="field.placeholder"
                        :aria-invalid="wrong === field.name" :data-testid="'change-' + field.name"></textarea>
              <span v-else-if="field.kind === 'check'" class="switch">
                <input type="checkbox" :id="'change-' + field.name" true-value="on" false-value=""
                       v-model="values[field.name]" :data-testid="'change-' + field.name" />{{ field.label }}</span>
              <template v-else>
                <input type="text" :id="'change-' + field.name" v-model="values[field.name]" autocomplete="off"
                       spellcheck="false" autocapitalize="off" :placeholder="field.placeholder"
                       :list="field.suggestions.length ? 'change-list-' + field.name : null"
                       :aria-invalid="wrong === field.name" :data-testid="'change-' + field.name" />
                <datalist v-if="field.suggestions.length" :id="'change-list-' + field.name">
                  <option v-for="each in field.suggestions" :key="each" :value="each"></option></datalist>
              </template>
            </label>
            <p v-if="wrong === field.name && problem" class="tone bad" role="alert">{{ problem }}</p>
            <p v-else-if="field.about" class="below">{{ field.about }}</p>
          </div>
        </div>
        <div v-if="step !== 'form'" class="change-plan">
          <p data-testid="change-sentence" role="status">{{ sentence }}</p>
          <div v-if="step === 'plan' && rows.length" class="table-box" tabindex="0" role="region" aria-label="What would change">
            <table data-testid="change-rows">
              <thead><tr><th v-for="(column, at) in columns" :key="column" scope="col" :class="numberClass(at)">{{ column }}</th></tr></thead>
              <tbody><tr v-for="(row, place) in rows" :key="place">
                <td v-for="(cell, at) in row" :key="at" :class="numberClass(at)">{{ cell }}</td></tr></tbody>
            </table>
          </div>
          <ul v-if="step === 'plan' && notes.length" class="notes"><li v-for="note in notes" :key="note">{{ note }}</li></ul>
          <p v-if="step === 'plan' && whyNot" class="about" data-testid="change-refused">{{ whyNot }}</p>
          <div v-if="step === 'plan' && command" class="command">
            <code data-testid="change-command"><template v-for="(word, place) in command.split(' ')" :key="place">{{
              place ? " " : "" }}<span>{{ word }}</span></template></code>
            <button type="button" class="quiet-button" aria-label="Copy the command" @click="copy">{{
              copied || "Copy" }}</button></div>
        </div>
        <p v-if="problem && !isFieldShown" class="tone bad" role="alert" data-testid="change-problem">{{ problem }}</p>
        <p v-else-if="problem" class="visually-hidden" data-testid="change-problem">{{ problem }}</p>
        <footer class="row">
          <template v-if="step === 'form'">
            <button class="button" data-testid="change-next" :disabled="busy">{{ busy ? "Checking …" : "Continue" }}</button>
            <button type="button" class="quiet-button" data-testid="change-cancel" @click="close">Cancel</button>
          </template>
          <template v-else-if="step === 'plan'">
            <button v-if="!whyNot" class="button" :class="{ harmful }" data-testid="change-confirm" :disabled="busy">{{
              busy ? "Working …" : verb }}</button>
            <button v-if="fields.length" type="button" class="quiet-button" data-testid="change-back" :disabled="busy"
                    @click="$emit('back')">Back</button>
            <button v-else type="button" class="quiet-button" data-testid="change-cancel" :disabled="busy"
                    @click="close">Cancel</button>
          </template>
          <button v-else type="button" class="button" data-testid="change-done" @click="close">Close</button>
        </footer>
      </form>
    </dialog>`,
  props: {
    title: String,
    about: String,
    verb: String,
    harmful: Boolean,
    fields: Array,
    step: String,
    busy: Boolean,
    problem: String,
    wrong: String,
    sentence: String,
    columns: Array,
    rows: Array,
    notes: Array,
    whyNot: String,
    command: String,
  },
  emits: ["send", "confirm", "back", "closed"],
  data() {
    return { values: Object.fromEntries(this.fields.map((field) => [field.name, field.value])), copied: "" };
  },
  computed: {
    shown() {
      return this.fields.filter((field) => !field.when || field.when.values.includes(this.values[field.when.name]));
    },
    isFieldShown() {
      return this.step === "form" && this.shown.some((field) => field.name === this.wrong);
    },
  },
  watch: {
    async step() {
      await this.$nextTick();
      this.$refs.dialog?.querySelector("footer .button:not(.harmful), footer .quiet-button")?.focus();
    },
  },
  mounted() {
    this.$refs.dialog.showModal();
    this.$refs.dialog.querySelector(".change-field input, .change-field select, .change-field textarea")?.focus();
    // Without fields there is nothing to fill in.
    if (!this.fields.length) this.send();
  },
  methods: {
    send() {
      if (this.busy) return;
      this.step === "form" ? this.$emit("send", { ...this.values }) : this.step === "plan" && this.$emit("confirm");
    },
    numberClass(at) {
      return this.rows.every((row) => /^(–|stays|[-+]?[\d,]+)$/.test(row[at])) ? "number" : null;
    },
    close() {
      this.$refs.dialog.close();
    },
    onCancel(event) {
      if (this.busy) event.preventDefault();
    },
    onBackdrop() {
      // A slip outside of the dialog must not lose what was typed.
      if (this.step === "done") this.close();
    },
    async copy() {
      this.copied = (await duralog.copy(this.command)) ? "Copied" : "Not copied";
      setTimeout(() => (this.copied = ""), 1200);
    },
  },
};
