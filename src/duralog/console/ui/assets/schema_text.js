// A schema, coloured by its tokens, with a button that copies it. Everything is shown as text.
export default {
  template: `
    <div class="schema-text">
      <button type="button" class="quiet-button" data-testid="copy-schema" @click="copyText">{{ copied || "Copy" }}</button>
      <pre data-testid="schema-text" tabindex="0"><template v-for="token in tokens"><span
        v-if="token[0] !== 'plain'" :class="'json-' + token[0]">{{ token[1] }}</span><template v-else>{{ token[1] }}</template></template></pre>
    </div>`,
  props: { tokens: Array, copy: String },
  data: () => ({ copied: "" }),
  methods: {
    async copyText() {
      this.copied = (await duralog.copy(this.copy)) ? "Copied" : "Not copied";
      setTimeout(() => (this.copied = ""), 1200);
    },
  },
};
