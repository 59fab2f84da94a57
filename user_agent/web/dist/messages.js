import{a}from"./chunk-I4U67CA5.js";export{a as messages};
